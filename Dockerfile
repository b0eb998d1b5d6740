# fedcell with its dashboard: docker build -t fedcell . && docker run --rm fedcell race --seeds 2 --budget-s 60 --plot none
# The dashboard: docker run --rm -p 127.0.0.1:8420:8420 -e FEDCELL_TOKEN=... -v "$PWD:/data" fedcell serve --host 0.0.0.0 --no-browser
FROM python:3.12-slim

WORKDIR /src
COPY pyproject.toml hatch_build.py README.md LICENSE ./
COPY src src
# hadolint ignore=DL3013
RUN pip install --no-cache-dir ".[dashboard,parquet]" \
    && useradd --create-home --uid 1000 fedcell \
    && mkdir /data && chown fedcell /data

USER 1000
WORKDIR /data
# Compiled code is cached where this user may write.
ENV NUMBA_CACHE_DIR=/home/fedcell/.cache/numba
EXPOSE 8420
ENTRYPOINT ["fedcell"]
CMD ["--help"]
