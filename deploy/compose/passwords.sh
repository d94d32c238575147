#!/bin/sh
# Sets the passwords of the roles of deploy/postgresql/roles.sql. The image sets POSTGRES_DB and POSTGRES_USER.
set -eu

psql --no-psqlrc --quiet --set ON_ERROR_STOP=1 --username "$POSTGRES_USER" --dbname "$POSTGRES_DB" <<'SQL'
\getenv owner QUEEN_OWNER_PASSWORD
\getenv server QUEEN_SERVER_PASSWORD
ALTER ROLE queen_owner PASSWORD :'owner';
ALTER ROLE queen_server PASSWORD :'server';
SQL
