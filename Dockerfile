# docker build -t millrace . && docker run -p 8080:8080 -v millrace:/cache -e MILLRACE_API_KEYS=... millrace
FROM debian:bookworm-slim AS build
WORKDIR /src
COPY scripts/install-deps scripts/install-deps
RUN scripts/install-deps
COPY . .
RUN cmake --preset release -DMILLRACE_TESTS=OFF && cmake --build --preset release && cmake --install build/release --prefix /opt/millrace --strip

FROM debian:bookworm-slim
RUN apt-get update && apt-get install -y --no-install-recommends ca-certificates libcurl4 libedit2 libfmt9 libhwloc15 \
    libprometheus-cpp-core1.0 libspdlog1.10 libssl3 libutf8proc2 && rm -rf /var/lib/apt/lists/* \
    && useradd --create-home --uid 1000 millrace && install -d -o millrace /cache
COPY --from=build /opt/millrace /usr/local
USER millrace
ENV MILLRACE_CACHE=/cache MILLRACE_HOST=0.0.0.0
EXPOSE 8080
# The port is open to everyone unless MILLRACE_API_KEYS or MILLRACE_API_KEY_FILE is set.
HEALTHCHECK --interval=10s --start-period=120s CMD ["bash", "-c", "exec 3<>/dev/tcp/127.0.0.1/8080 && printf 'GET /health HTTP/1.0\\r\\n\\r\\n' >&3 && grep -q '200 OK' <&3"]
STOPSIGNAL SIGTERM
ENTRYPOINT ["millrace"]
CMD ["serve"]
