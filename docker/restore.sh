#!/bin/sh
# Replaces the database of a deployment by a dump of pg_dump --format=custom, or changes nothing.
# Usage: docker/restore.sh FILE COMMAND..., where COMMAND runs a program in the database's container, such as
#   docker/restore.sh hacrl.dump docker compose -f docker/compose.yaml exec -T database
set -eu
if [ $# -lt 2 ] || [ ! -r "$1" ]; then
    echo "usage: $0 FILE COMMAND..., with a FILE that can be read" >&2
    exit 2
fi
file=$1
shift

# Without COMMIT at its end, psql takes everything back. Tables of a newer version, which the dump does not name, go too.
statements() {
    echo "SET lock_timeout = '10s';"
    cat << 'END'

SET client_min_messages = warning;
BEGIN;
SELECT format('DROP TABLE IF EXISTS %I.%I CASCADE', schemaname, tablename) FROM pg_tables
    WHERE tableowner = current_user AND schemaname NOT IN ('pg_catalog', 'information_schema') \gexec
END
    "$@" pg_restore --clean --if-exists --no-owner --file=- < "$file" &&
        printf 'COMMIT;\n\\echo Restored.\n'
}

# ./hacrl restore names its database; in containers it is ours.
answer=$(statements "$@" | "$@" psql --username="${PGUSER:-hacrl}" --dbname="${PGDATABASE:-hacrl}" --no-psqlrc --quiet --set=ON_ERROR_STOP=1) || true
case $answer in
    *Restored.) echo "Restored." ;;
    *)
        echo "Nothing was changed." >&2
        exit 1
        ;;
esac
