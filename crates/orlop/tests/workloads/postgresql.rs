//! The same on PostgreSQL: everything that a workload writes and watches goes through another engine.

use std::time::{Duration, Instant};

use orlop_testbed::Cluster;

use crate::{
    cluster::{container_processes, get, web_image},
    support::daemon::Daemon,
};

const WORKLOADS: &str = r#"
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - name: web
        image: web
        readinessProbe: {httpGet: {path: /, port: 8080}, periodSeconds: 1}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: web}, ports: [{port: 8080}]}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec:
  replicas: 2
  serviceName: db
  selector: {matchLabels: {app: db}}
  template:
    metadata: {labels: {app: db}}
    spec:
      containers:
      - name: db
        image: local/sh
        command: [sh, -c, 'hostname >> $ORLOP_ROOT/data/starts; cat $ORLOP_ROOT/data/starts; sleep 1234']
        volumeMounts: [{name: data, mountPath: /data}]
  volumeClaimTemplates:
  - metadata: {name: data}
    spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Mi}}}
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: agent}
spec:
  selector: {matchLabels: {app: agent}}
  template:
    metadata: {labels: {app: agent}}
    spec: {containers: [{name: agent, image: local/sh, command: [sleep, '1234']}]}
---
apiVersion: batch/v1
kind: Job
metadata: {name: sum}
spec:
  completions: 3
  parallelism: 2
  completionMode: Indexed
  template:
    spec:
      restartPolicy: Never
      containers: [{name: sum, image: local/sh, command: [sh, -c, 'echo $JOB_COMPLETION_INDEX']}]
"#;

#[test]
fn workloads_run_on_postgresql_and_survive_a_kill() {
    let folder = tempfile::tempdir().expect("a folder");
    let images = web_image();
    let postgres = Cluster::shared().expect("PostgreSQL");
    let database = postgres.url(&postgres.create_database().expect("a database"));
    let number = std::process::id() % 60;
    let (pods, services) = (format!("127.{}.16.0/20", 64 + number), format!("127.{}.16.0/20", 190 + number));
    let mark = format!("KUBERNETES_SERVICE_HOST=127.{}.16.1", 190 + number);
    let images = images.path().display().to_string();
    let options = [
        "--node",
        "--node-name",
        "n1",
        "--endpoint",
        &database,
        "--images",
        &images,
        "--pod-range",
        &pods,
        "--service-cluster-ip-range",
        &services,
    ];
    let data_dir = folder.path().join("data");
    let daemon = Daemon::start(&data_dir, &options);
    daemon.with_input(&["create", "-f", "-"], WORKLOADS);
    for workload in ["deployment/web", "statefulset/db", "daemonset/agent"] {
        daemon.kubectl(&["rollout", "status", workload, "--timeout=120s"]);
    }
    daemon.kubectl(&["wait", "--for=condition=complete", "job/sum", "--timeout=120s"]);
    let indexes = "jsonpath={.status.completedIndexes} {.status.succeeded}";
    assert_eq!(daemon.kubectl(&["get", "job", "sum", "-o", indexes]), "0-2 3");
    let service = daemon.kubectl(&["get", "service", "web", "-o", "jsonpath={.spec.clusterIP}:8080"]);
    let answers = |version: &str| {
        let deadline = Instant::now() + Duration::from_secs(60);
        while !get(&service).is_some_and(|answer| answer.starts_with(version)) {
            assert!(Instant::now() < deadline, "no answer of version {version}");
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    answers("1 ");
    daemon.kubectl(&["set", "env", "deployment/web", "VERSION=2"]);
    daemon.kubectl(&["rollout", "status", "deployment/web", "--timeout=120s"]);
    answers("2 ");
    assert_eq!(daemon.kubectl(&["logs", "db-1"]), "db-1");
    assert_eq!(daemon.kubectl(&["exec", "db-0", "--", "hostname"]), "db-0");

    // Pods of the old version are gone a little later than the new ones are ready.
    daemon.eventually(&["get", "pods", "-l", "app=web", "-o", "name"], |pods| pods.lines().count() == 2);
    let before = container_processes(&mark);
    daemon.kill();
    let daemon = Daemon::start(&data_dir, &options);
    daemon.kubectl(&["wait", "--for=condition=Ready", "pod", "-l", "app=web", "--timeout=120s"]);
    answers("2 ");
    assert_eq!(container_processes(&mark), before);
    // Its claim keeps what the pod wrote.
    daemon.kubectl(&["delete", "pod", "db-0", "--timeout=60s", "--grace-period=1"]);
    daemon.kubectl(&["wait", "--for=create", "pod/db-0", "--timeout=120s"]);
    daemon.kubectl(&["wait", "--for=condition=Ready", "pod/db-0", "--timeout=120s"]);
    assert_eq!(daemon.kubectl(&["logs", "db-0"]), "db-0\ndb-0");
    daemon.kubectl(&["delete", "deployment,statefulset,daemonset,job", "--all", "--timeout=60s"]);
    daemon.kubectl(&["wait", "--for=delete", "pod", "--all", "--timeout=60s"]);
    assert_eq!(container_processes(&mark), Vec::<String>::new());
    daemon.stop();
}
