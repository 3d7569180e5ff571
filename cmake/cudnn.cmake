# cuDNN's attention: the header-only front-end from its wheel on PyPI (equal for all platforms). The library itself is
# loaded at run time. Without these headers, or cuDNN's own, this candidate is left out.
function(millrace_find_cudnn_frontend)
  find_path(CUDNN_INCLUDE_DIR cudnn_graph.h HINTS ${CUDAToolkit_INCLUDE_DIRS} ENV CUDNN_INCLUDE_DIR)
  if(NOT CUDNN_INCLUDE_DIR)
    message(STATUS "cuDNN's headers were not found: its attention will not be a candidate")
    return()
  endif()
  include(cmake/pypi_archive.cmake)
  set(name nvidia_cudnn_frontend-1.18.0)
  pypi_archive(archive problem nvidia-cudnn-frontend
    ${name}-cp311-cp311-manylinux_2_27_x86_64.manylinux_2_28_x86_64.whl
    382ea063b92cbfd5b442cb75ff8422932d78276aecf139e46713ed1ad3d07af4)
  if(problem)
    message(WARNING "cuDNN's attention will not be a candidate: ${problem}")
    return()
  endif()
  set(folder ${CMAKE_BINARY_DIR}/_deps/${name})
  if(NOT EXISTS ${folder}/include/cudnn_frontend.h)
    file(ARCHIVE_EXTRACT INPUT ${archive} DESTINATION ${folder}.part PATTERNS "include/*")
    file(RENAME ${folder}.part ${folder})
  endif()
  set(CUDNN_FRONTEND_INCLUDE_DIRS ${folder}/include ${CUDNN_INCLUDE_DIR} PARENT_SCOPE)
endfunction()

if(MILLRACE_CUDA AND MILLRACE_CUDNN)
  millrace_find_cudnn_frontend()
endif()
