ARG BASE_IMAGE=python:3.11-slim-bookworm


FROM ${BASE_IMAGE} AS build

ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore
WORKDIR /build
# The mount makes a builder other than BuildKit stop here, with an error that names BuildKit. Otherwise such a builder would run
# for minutes and fail at the first secret. Java's package needs the directory of manual pages, which slim images do not have.
RUN --mount=type=tmpfs,target=/var/cache/apt \
    mkdir -p /usr/share/man/man1 \
    && apt-get update --error-on=any \
    && apt-get install --yes --no-install-recommends binutils


# A Java runtime with the modules that Spark needs, and an archive of Java's own classes. The archive is made with the garbage
# collector that Spark's JVM uses. That collector also makes the same bytes in each build.
FROM build AS java

RUN apt-get install --yes --no-install-recommends openjdk-17-jdk-headless
COPY image/java-modules.txt ./
RUN jlink --add-modules "$(paste --serial --delimiters , java-modules.txt)" --output /opt/java \
        --compress 2 --strip-debug --no-header-files --no-man-pages \
    && /opt/java/bin/java -XX:+UseSerialGC -Xshare:dump


# The pinned packages. The address and password of a private package index are a build secret, so no layer contains them.
FROM build AS installed

RUN python3 -m venv --without-pip /opt/connector
COPY requirements.txt ./
RUN --mount=type=secret,id=pipconf,target=/etc/pip.conf \
    --mount=type=cache,target=/root/.cache/pip \
    awk '/^setuptools==/,/# via/' requirements.txt >build-requirements.txt \
    && pip="python3 -m pip --python /opt/connector/bin/python install --no-compile --require-hashes" \
    && $pip -r build-requirements.txt \
    && $pip --no-build-isolation -r requirements.txt


FROM installed AS wheel

COPY . ./
RUN python3 -m pip --python /opt/connector/bin/python wheel --no-build-isolation --no-deps --no-index --wheel-dir /wheel .


# The packages, without their unused parts, and byte-compiled.
FROM installed AS packages

COPY image/unused.txt image/trim.py ./
# Compiled modules and timestamps are always the same, so that the same sources make the same layers.
RUN cd /opt/connector/lib/python3.11/site-packages \
    && python3 /build/trim.py /build/unused.txt . \
    && strip --strip-unneeded cryptography/hazmat/bindings/*.so pyarrow/*.so* pyiceberg/avro/*.so pyroaring.*.so \
        sqlalchemy/*/*.so zstandard/*.so \
    && PYTHONHASHSEED=0 python3 -m compileall -q -j 0 --invalidation-mode unchecked-hash /opt/connector \
    && find /opt/connector -exec touch --no-dereference --date @315532800 {} +


# The connector in a separate directory tree, with the archive of Spark's classes. Making the archive needs the packages.
FROM packages AS connector

COPY --from=java /opt/java /opt/java
COPY --from=wheel /wheel /wheel
RUN python3 -m pip --python /opt/connector/bin/python install --root /new --no-compile --no-deps --no-index /wheel/*.whl \
    && PYTHONHASHSEED=0 python3 -m compileall -q -s /new -p / --invalidation-mode unchecked-hash /new \
    && cp --recursive /new/. / \
    && archive=$(JAVA_HOME=/opt/java /opt/connector/bin/python -m connector.spark.jvm.class_archive) \
    && install -D --mode 644 "$archive" "/new$archive" \
    && find /new -exec touch --no-dereference --date @315532800 {} +


FROM ${BASE_IMAGE}

# Public Python images have no compiled modules of the standard library, and a read-only root cannot get them later. This layer
# comes before the connector's: it stays the same until the base changes.
RUN PYTHONHASHSEED=0 python3 -m compileall -q -j 0 --invalidation-mode unchecked-hash "$(python3 -c 'import sysconfig; print(sysconfig.get_path("stdlib"))')"
COPY --from=java /opt/java /opt/java
COPY --from=packages /opt/connector /opt/connector
COPY --from=connector /new /

# Any user, with or without a name, can write only to /tmp.
ENV PATH=/opt/connector/bin:$PATH \
    JAVA_HOME=/opt/java \
    HOME=/tmp \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONSAFEPATH=1
USER 65532:65532
ENTRYPOINT ["materialize-iceberg"]

ARG VERSION=unknown
ARG REVISION=unknown
# For --version: the installed package does not know its commit.
ENV MATERIALIZE_ICEBERG_REVISION=${REVISION}
# No label names a licence: the connector has one (Apache-2.0), Java and Debian have many others. scripts/sbom lists them.
LABEL FLOW_RUNTIME_PROTOCOL=materialize \
    FLOW_RUNTIME_CODEC=json \
    org.opencontainers.image.title=materialize-iceberg \
    org.opencontainers.image.description="A Flow materialization connector that commits JSON lines to Apache Iceberg tables exactly once." \
    org.opencontainers.image.version=${VERSION} \
    org.opencontainers.image.revision=${REVISION}
