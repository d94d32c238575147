#!/bin/sh
# Writes Patroni's file from the environment and cluster.yaml, and becomes Patroni. The passwords stay in the
# environment (PATRONI_SUPERUSER_PASSWORD, PATRONI_REPLICATION_PASSWORD, PATRONI_REWIND_PASSWORD).
set -eu

{
    cat <<YAML
scope: queen
name: $NODE
etcd3: {hosts: [etcd-one:2379, etcd-two:2379, etcd-three:2379]}
restapi: {listen: "0.0.0.0:8008", connect_address: "$NODE:8008"}
postgresql:
  listen: 0.0.0.0:5432
  connect_address: $NODE:5432
  data_dir: /var/lib/postgresql/node/data
  authentication:
    superuser: {username: postgres}
    replication: {username: replicator}
    rewind: {username: rewinder}
  pg_hba:
    - local all all trust
    - host all all all scram-sha-256
    - host replication replicator all scram-sha-256
bootstrap:
  post_bootstrap: /etc/patroni/node.sh database
  initdb: [data-checksums, {encoding: UTF8}, {locale: C.UTF-8}]
  dcs:
YAML
    sed 's/^/    /; /---/d' /etc/patroni/cluster.yaml
} > /tmp/patroni.yaml

# Patroni calls it so, once per cluster, on the first primary.
if [ "${1:-}" = database ]; then
    # There is no standby yet that could confirm a commit.
    export POSTGRES_USER=postgres POSTGRES_DB=queen PGHOST=/var/run/postgresql PGOPTIONS="-c synchronous_commit=local"
    createdb --username postgres queen
    psql --no-psqlrc --quiet --set ON_ERROR_STOP=1 --username postgres --file /etc/patroni/roles.sql queen
    exec /etc/patroni/passwords.sh
fi
exec /opt/patroni/bin/patroni /tmp/patroni.yaml
