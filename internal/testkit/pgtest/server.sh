# A PostgreSQL server in a folder of its own, which lives until standard input ends:
# so it goes, with all it has, when whoever started it does, however that ends. A line
# of it has the server die, and come back after as many seconds as the line says.
#
#   sh server.sh BINARIES PORT
set -eu
bin=$1 port=$2
dir=$(mktemp -d)
as() { "$@"; }
if [ "$(id -u)" = 0 ]; then # which the server refuses to be
	chown postgres "$dir"
	as() { setpriv --reuid postgres --regid postgres --clear-groups "$@"; }
fi
cd "$dir"
trap '' HUP INT TERM # what ends the tests does not end this, but that they are gone
trap 'rm -rf "$dir"' EXIT
as "$bin/initdb" -D "$dir/data" -A trust -U holdall --no-sync -E UTF8 --locale=C >"$dir/log" 2>&1 || { cat "$dir/log"; exit 1; }
begin() {
	as "$bin/pg_ctl" -D "$dir/data" -w -l "$dir/data/log" \
		-o "-c listen_addresses=127.0.0.1 -p $port -c unix_socket_directories=$dir/data -c fsync=off -c max_connections=200" start >"$dir/log" 2>&1 ||
		{ cat "$dir/log" "$dir/data/log"; exit 1; }
	echo ready
}
begin
while read -r away; do
	as "$bin/pg_ctl" -D "$dir/data" -m immediate stop >"$dir/log" 2>&1 || :
	sleep "$away"
	begin
done
as "$bin/pg_ctl" -D "$dir/data" -m immediate stop >"$dir/log" 2>&1
