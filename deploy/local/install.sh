#!/usr/bin/env bash
# Installs what a local cell and the tests against real servers need, on Debian and its kin:
# Java 17 and Maven (a Kafka broker from Maven Central's jars), PostgreSQL, Prometheus and kcat.
# Only what is missing, as often as one likes; no system service is started or left enabled.
set -euo pipefail

say() { echo "install: $*" >&2; }

java_is_new_enough() {
    command -v java >/dev/null || return 1
    local version
    version="$(java -version 2>&1 | sed -n 's/.* version "\([0-9]*\).*/\1/p' | head -n 1)"
    [ "${version:-0}" -ge 17 ]
}

postgresql_is_there() {
    command -v initdb >/dev/null || compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null
}

missing=()
java_is_new_enough || missing+=(openjdk-17-jre-headless)
command -v mvn >/dev/null || missing+=(maven)
postgresql_is_there || missing+=(postgresql)
command -v prometheus >/dev/null || missing+=(prometheus)
command -v kcat >/dev/null || missing+=(kcat)

if [ "${#missing[@]}" -eq 0 ]; then
    say "everything is there"
    exit 0
fi
if ! command -v apt-get >/dev/null; then
    say "missing: ${missing[*]}"
    say "there is no apt-get here; install them as this system does"
    exit 1
fi

as_root=()
if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || { say "run this as root, or install sudo"; exit 1; }
    as_root=(sudo)
fi

# Debian's packages start their daemons when they are installed, unless this file says no.
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
    trap '"${as_root[@]}" rm -f "$policy"' EXIT
    printf '#!/bin/sh\nexit 101\n' | "${as_root[@]}" tee "$policy" >/dev/null
    "${as_root[@]}" chmod 755 "$policy"
fi

say "installing: ${missing[*]}"
"${as_root[@]}" apt-get update -q
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get install -q -y --no-install-recommends "${missing[@]}"

# Nor at the next boot: tests and `make up` start servers of their own.
if [ -d /run/systemd/system ]; then
    for package in "${missing[@]}"; do
        case "$package" in
            postgresql | prometheus) "${as_root[@]}" systemctl disable --now "$package" ;;
        esac
    done
fi
say "done"
