#!/bin/sh
# Runs java/Main from beside the classes and jars that ../install puts it next to.
# HOLDALL_OAK_JAVA are options for java instead of these; HOLDALL_OAK_LOG=WARN lets
# the reference log to stderr. It collects garbage whenever it closes a store, to be
# rid of mappings that we do not let it make: most of the time would go there. It
# lives too short for the second compiler of Java.
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck disable=SC2086
exec java ${HOLDALL_OAK_JAVA:--Xmx1g -XX:+UseSerialGC -XX:+DisableExplicitGC -XX:TieredStopAtLevel=1} \
	-Djava.io.tmpdir="${TMPDIR:-/tmp}" -Doak.gc.backoff=-1 \
	-Dlogback.configurationFile="$here/logback.xml" \
	-cp "$here/classes:$here/lib/*" oakcheck.Main "$@"
