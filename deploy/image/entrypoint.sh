#!/bin/bash
# What the image runs: `lakesweep` with the given arguments, or a Spark executor when Kubernetes starts the image as one.
#
# Everything is replaced by exec, so that signals reach the program and not a shell.
set -euo pipefail

# Spark starts executor pods with the single argument `executor` and passes the rest in variables.
spark_executor() {
    local spark classpath jvm_options=() number option
    spark=$(/opt/lakesweep/bin/python -c 'import pyspark; print(pyspark.__path__[0])')
    for ((number = 0; ; number++)); do
        option="SPARK_JAVA_OPT_${number}"
        [ -n "${!option+set}" ] || break
        jvm_options+=("${!option}")
    done
    classpath="${SPARK_CONF_DIR:-/opt/spark/conf}:${SPARK_CLASSPATH:+${SPARK_CLASSPATH}:}${spark}/jars/*"
    export SPARK_HOME="${spark}" PYSPARK_PYTHON=/opt/lakesweep/bin/python
    exec java "${jvm_options[@]}" "-Xms${SPARK_EXECUTOR_MEMORY}" "-Xmx${SPARK_EXECUTOR_MEMORY}" \
        -cp "${classpath}" \
        org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
        --driver-url "${SPARK_DRIVER_URL}" \
        --executor-id "${SPARK_EXECUTOR_ID}" \
        --cores "${SPARK_EXECUTOR_CORES}" \
        --app-id "${SPARK_APPLICATION_ID}" \
        --hostname "${SPARK_EXECUTOR_POD_IP}" \
        --resourceProfileId "${SPARK_RESOURCE_PROFILE_ID:-0}" \
        --podName "${SPARK_EXECUTOR_POD_NAME}"
}

if [ "${1:-}" = executor ]; then
    spark_executor
fi
# A settings file that is mounted at the usual place needs no argument.
if [ -z "${LAKESWEEP_CONFIG:-}" ] && [ -f /etc/lakesweep/lakesweep.toml ]; then
    export LAKESWEEP_CONFIG=/etc/lakesweep/lakesweep.toml
fi
exec /opt/lakesweep/bin/lakesweep "$@"
