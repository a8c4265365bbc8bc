//! `/metrics/resource` and `/stats/summary`: use of cpu and memory by the node and its pods.

use std::fmt::Write;

use http::{Response, StatusCode};
use k8s_openapi::{
    api::core::v1::{ContainerStatus, Pod},
    jiff::Timestamp,
};
use serde_json::{Value, json};

use super::{Body, full, json, response};
use crate::{
    context::{Entry, Node},
    usage::{self, Usage},
};

/// Usage of a container.
struct Sample {
    container: String,
    started_at: Option<Timestamp>,
    usage: Usage,
}

/// Responds with the metrics that autoscalers and `kubectl top` are made from, in Prometheus' text format.
pub(super) fn resource(node: &Node) -> Response<Body> {
    let now = Timestamp::now().as_millisecond();
    let pods: Vec<(Entry, Vec<Sample>)> = samples(node);
    let machine = usage::of_machine();
    let mut text = String::new();
    let mut family = |name: &str, kind: &str, help: &str, lines: &[(String, f64)]| {
        let _ = writeln!(text, "# HELP {name} [STABLE] {help}\n# TYPE {name} {kind}");
        for (labels, value) in lines {
            let _ = writeln!(text, "{name}{labels} {value} {now}");
        }
    };
    let of_containers = |value: fn(&Sample) -> Option<f64>| -> Vec<(String, f64)> {
        let all = pods.iter().flat_map(|(entry, samples)| samples.iter().map(move |sample| (entry, sample)));
        all.filter_map(|(entry, sample)| {
            let labels = format!("{{container={:?},{}}}", sample.container, pod_labels(&entry.pod));
            Some((labels, value(sample)?))
        })
        .collect()
    };
    let of_pods = |value: fn(&Usage) -> f64| -> Vec<(String, f64)> {
        let all = pods.iter().map(|(entry, samples)| {
            let sum: Usage = samples.iter().map(|sample| sample.usage).sum();
            (format!("{{{}}}", pod_labels(&entry.pod)), value(&sum))
        });
        all.collect()
    };
    let cpu = |usage: &Usage| usage.cpu_seconds;
    let memory = |usage: &Usage| usage.memory_bytes as f64;
    family(
        "container_cpu_usage_seconds_total",
        "counter",
        "Cumulative cpu time consumed by the container in core-seconds",
        &of_containers(|sample| Some(sample.usage.cpu_seconds)),
    );
    family(
        "container_memory_working_set_bytes",
        "gauge",
        "Current working set of the container in bytes",
        &of_containers(|sample| Some(sample.usage.memory_bytes as f64)),
    );
    family(
        "container_start_time_seconds",
        "gauge",
        "Start time of the container since unix epoch in seconds",
        &of_containers(|sample| sample.started_at.map(|at| at.as_millisecond() as f64 / 1000.0)),
    );
    family(
        "node_cpu_usage_seconds_total",
        "counter",
        "Cumulative cpu time consumed by the node in core-seconds",
        &[(String::new(), cpu(&machine))],
    );
    family(
        "node_memory_working_set_bytes",
        "gauge",
        "Current working set of the node in bytes",
        &[(String::new(), memory(&machine))],
    );
    family(
        "pod_cpu_usage_seconds_total",
        "counter",
        "Cumulative cpu time consumed by the pod in core-seconds",
        &of_pods(cpu),
    );
    family(
        "pod_memory_working_set_bytes",
        "gauge",
        "Current working set of the pod in bytes",
        &of_pods(memory),
    );
    let _ = writeln!(
        text,
        "# HELP resource_scrape_error [STABLE] 1 if there was an error while getting container metrics, 0 otherwise\n\
         # TYPE resource_scrape_error gauge\nresource_scrape_error 0"
    );
    response(StatusCode::OK, "text/plain; version=0.0.4; charset=utf-8", full(text))
}

/// Responds with the summary that older programs read.
pub(super) fn summary(node: &Node) -> Response<Body> {
    let now = Timestamp::now().to_string();
    let part = |usage: &Usage| {
        json!({
            "cpu": {"time": now, "usageCoreNanoSeconds": (usage.cpu_seconds * 1e9) as u64},
            "memory": {"time": now, "workingSetBytes": usage.memory_bytes},
        })
    };
    let merged = |mut value: Value, usage: &Usage| {
        if let (Some(value), Value::Object(part)) = (value.as_object_mut(), part(usage)) {
            value.extend(part);
        }
        value
    };
    let pods: Vec<Value> = samples(node)
        .iter()
        .map(|(entry, samples)| {
            let containers: Vec<Value> = samples
                .iter()
                .map(|sample| {
                    let started_at = sample.started_at.map(|at| at.to_string());
                    merged(json!({"name": sample.container, "startTime": started_at}), &sample.usage)
                })
                .collect();
            let metadata = &entry.pod.metadata;
            let pod = json!({
                "podRef": {"name": metadata.name, "namespace": metadata.namespace, "uid": entry.uid},
                "startTime": entry.pod.status.as_ref().and_then(|status| status.start_time.clone()),
                "containers": containers,
            });
            merged(pod, &samples.iter().map(|sample| sample.usage).sum())
        })
        .collect();
    let own = merged(json!({"nodeName": node.settings.name}), &usage::of_machine());
    json(&json!({"node": own, "pods": pods}))
}

/// Returns the usage of all running containers, by pod.
fn samples(node: &Node) -> Vec<(Entry, Vec<Sample>)> {
    let mut pods: Vec<(Entry, Vec<Sample>)> = Vec::new();
    for entry in node.directory.all() {
        let mut samples: Vec<Sample> = entry
            .containers
            .iter()
            .filter_map(|(name, runs)| {
                let usage = usage::of_container(runs.live.as_ref()?.monitor_pid());
                Some(Sample { container: name.clone(), started_at: started_at(&entry.pod, name), usage })
            })
            .collect();
        samples.sort_by(|a, b| a.container.cmp(&b.container));
        if !samples.is_empty() {
            pods.push((entry, samples));
        }
    }
    pods.sort_by(|(a, _), (b, _)| key(&a.pod).cmp(&key(&b.pod)));
    pods
}

fn key(pod: &Pod) -> (Option<&str>, Option<&str>) {
    (pod.metadata.namespace.as_deref(), pod.metadata.name.as_deref())
}

fn pod_labels(pod: &Pod) -> String {
    let (namespace, name) = key(pod);
    format!("namespace={:?},pod={:?}", namespace.unwrap_or_default(), name.unwrap_or_default())
}

fn started_at(pod: &Pod, container: &str) -> Option<Timestamp> {
    let status = pod.status.as_ref()?;
    let lists = [&status.container_statuses, &status.init_container_statuses];
    let mut all = lists.into_iter().flatten().flatten();
    let found: &ContainerStatus = all.find(|status| status.name == container)?;
    Some(found.state.as_ref()?.running.as_ref()?.started_at.as_ref()?.0)
}
