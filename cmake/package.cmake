# The Debian package: scripts/release runs cpack in the build folder. `share` holds the man page and the completions,
# which scripts/make_manual.py writes there.
install(DIRECTORY ${PROJECT_BINARY_DIR}/share/ DESTINATION share OPTIONAL)

# A system package brings the unit of the server, with the program's place in the package.
file(READ ${PROJECT_SOURCE_DIR}/packaging/millrace.service unit)
string(REPLACE "/usr/local/bin" "/usr/bin" unit "${unit}")
string(REGEX REPLACE "^# systemd unit: copy to /etc/systemd/system, put" "# systemd unit: put" unit "${unit}")
file(WRITE ${PROJECT_BINARY_DIR}/millrace.service "${unit}")
install(CODE "if(CMAKE_INSTALL_PREFIX STREQUAL \"/usr\")
  file(INSTALL DESTINATION /usr/lib/systemd/system TYPE FILE FILES \"${PROJECT_BINARY_DIR}/millrace.service\")
endif()")

set(CMAKE_SKIP_INSTALL_ALL_DEPENDENCY ON)  # cpack would build the tests before it packs
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME millrace)
set(CPACK_PACKAGE_CONTACT "The millrace contributors")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "Run and serve language models, fast without tuning")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_PACKAGE_DIRECTORY ${PROJECT_BINARY_DIR}/packages)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS ca-certificates)
include(CPack)
