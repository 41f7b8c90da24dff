# Interlock with Debian's Chromium, for one worker or one command:
#
#   docker build -t interlock .
#   docker run --rm -v interlock-data:/data --init --shm-size=1g interlock demo
#
# Chromium's sandbox needs user namespaces, which Docker's default seccomp profile refuses. Keep the sandbox and
# allow them: run with `--security-opt seccomp=chrome.json` (the profile that Chromium's container users publish:
# Docker's default plus clone, setns, unshare and chroot), or with `--cap-add=SYS_ADMIN`, which is much wider.
# On a host that restricts user namespaces (Ubuntu 23.10 and later: kernel.apparmor_restrict_unprivileged_userns)
# that has to be lifted for the container too. Without either Chromium does not start, and `interlock doctor` says so;
# the sandbox is never switched off behind your back. `--init` reaps what the browser leaves; `--shm-size` is for pages
# with large pictures.
#
# The ledger and the evidence live in /data. Keep it on a local disk: SQLite's locks do not hold on network shares.

FROM python:3.11-slim-bookworm AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
WORKDIR /src
COPY requirements.lock pyproject.toml README.md LICENSE ./
# The lock also pins what development needs; the build backend comes from there. What runs later is installed into a
# clean environment: every package of it is one that the lock pins and whose hash it holds.
RUN python -m venv /build && /build/bin/pip install --quiet --require-hashes -r requirements.lock
COPY executor executor
COPY flows flows
COPY evidence evidence
COPY playground playground
RUN /build/bin/python -m hatchling build -t wheel -d /dist \
    && /build/bin/pip download --quiet --require-hashes --no-deps -r requirements.lock -d /wheels \
    && python -m venv --without-pip /opt/interlock \
    && /build/bin/pip --python /opt/interlock/bin/python install --quiet --no-index --find-links /wheels /dist/*.whl

FROM python:3.11-slim-bookworm
# Fonts: without them the screenshots of pages in most scripts show boxes.
RUN apt-get update \
    && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends \
        chromium libatomic1 fonts-liberation fonts-noto-core fonts-noto-cjk fonts-noto-color-emoji \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --uid 10001 --create-home interlock \
    && install -d -o interlock -g interlock -m 0700 /data /keys
COPY --from=build /opt/interlock /opt/interlock
ENV PATH=/opt/interlock/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    INTERLOCK_HOME=/data \
    INTERLOCK_KEY_FOLDER=/keys \
    INTERLOCK_BROWSER=/usr/bin/chromium
USER interlock
WORKDIR /data
# Two volumes: a copy of the data must not carry the key that opens its sealed sessions.
VOLUME /data /keys
HEALTHCHECK --interval=60s --timeout=20s --start-period=20s --retries=3 CMD ["interlock", "doctor", "--quick"]
ENTRYPOINT ["interlock"]
CMD ["--help"]
