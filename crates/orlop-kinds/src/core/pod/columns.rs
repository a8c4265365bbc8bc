//! Printer columns of a Pod, after kubectl's `printPod`.
//!
//! The status is the phase, unless something is more specific: the first init container that is not done,
//! else the first container (in order) that waits or has terminated, else that the pod is being deleted.

use orlop_api::time::Time;
use serde_json::Value;

use crate::{
    accessors::{flag, integer, is_condition_true, is_terminating, list, present, text, text_or, time},
    printer::{ColumnDefinition, PrinterColumns, age, format_age, name},
};

pub(crate) static COLUMNS: PrinterColumns = PrinterColumns {
    definitions: &[
        ColumnDefinition::NAME,
        ColumnDefinition::text("Ready"),
        ColumnDefinition::text("Status"),
        ColumnDefinition::text("Restarts"),
        ColumnDefinition::AGE,
        ColumnDefinition::wide("IP"),
        ColumnDefinition::wide("Node"),
        ColumnDefinition::wide("Nominated Node"),
        ColumnDefinition::wide("Readiness Gates"),
    ],
    cells,
};

fn cells(pod: &Value, now: Time) -> Vec<Value> {
    let state = State::of(pod);
    let restarts = match state.last_restart {
        Some(_) if state.restarts != 0 => {
            format!("{} ({} ago)", state.restarts, format_age(state.last_restart, now))
        }
        _ => state.restarts.to_string(),
    };
    vec![
        name(pod),
        format!("{}/{}", state.ready, state.total).into(),
        state.reason.into(),
        restarts.into(),
        age(pod, now),
        text_or(pod, "/status/podIPs/0/ip", "<none>").into(),
        text_or(pod, "/spec/nodeName", "<none>").into(),
        text_or(pod, "/status/nominatedNodeName", "<none>").into(),
        readiness_gates(pod).into(),
    ]
}

fn readiness_gates(pod: &Value) -> String {
    let gates = list(pod, "/spec/readinessGates");
    if gates.is_empty() {
        return "<none>".to_owned();
    }
    let open = gates.iter().filter(|gate| is_condition_true(pod, text(gate, "/conditionType"))).count();
    format!("{open}/{}", gates.len())
}

/// Summary of a pod's container statuses.
struct State {
    reason: String,
    ready: usize,
    total: usize,
    restarts: i64,
    last_restart: Option<Time>,
}

impl State {
    fn of(pod: &Value) -> Self {
        let mut state = Self {
            reason: text_or(pod, "/status/reason", text(pod, "/status/phase")).to_owned(),
            ready: 0,
            total: list(pod, "/spec/containers").len(),
            restarts: 0,
            last_restart: None,
        };
        let gated = |condition: &&Value| {
            text(condition, "/type") == "PodScheduled" && text(condition, "/reason") == "SchedulingGated"
        };
        if list(pod, "/status/conditions").iter().any(|condition| gated(&condition)) {
            state.reason = "SchedulingGated".to_owned();
        }
        let initializing = state.init_containers(pod);
        if !initializing || is_condition_true(pod, "Initialized") {
            state.containers(pod);
        }
        if is_terminating(pod) {
            if text(pod, "/status/reason") == "NodeLost" {
                state.reason = "Unknown".to_owned();
            } else if !matches!(text(pod, "/status/phase"), "Succeeded" | "Failed") {
                state.reason = "Terminating".to_owned();
            }
        }
        state
    }

    fn count_restarts(&mut self, status: &Value) {
        self.restarts += integer(status, "/restartCount");
        self.last_restart = self.last_restart.max(time(status, "/lastState/terminated/finishedAt"));
    }

    /// Adds the init containers; returns true while the pod initializes. Their restarts count only then, except for
    /// sidecars.
    fn init_containers(&mut self, pod: &Value) -> bool {
        let containers = list(pod, "/spec/initContainers");
        let restartable = |name: &str| {
            let of_name = containers.iter().find(|container| text(container, "/name") == name);
            of_name.is_some_and(|container| text(container, "/restartPolicy") == "Always")
        };
        self.total +=
            containers.iter().filter(|container| text(container, "/restartPolicy") == "Always").count();
        let mut sidecars = (0, None);
        let mut initializing = false;
        for (index, status) in list(pod, "/status/initContainerStatuses").iter().enumerate() {
            self.count_restarts(status);
            let sidecar = restartable(text(status, "/name"));
            if sidecar {
                sidecars.0 += integer(status, "/restartCount");
                sidecars.1 = sidecars.1.max(time(status, "/lastState/terminated/finishedAt"));
            }
            let ended = present(status, "/state/terminated");
            if ended.is_some() && integer(status, "/state/terminated/exitCode") == 0 {
                continue;
            }
            if sidecar && flag(status, "/started") {
                self.ready += usize::from(flag(status, "/ready"));
                continue;
            }
            let waiting = text(status, "/state/waiting/reason");
            self.reason = match ended {
                Some(ended) => format!("Init:{}", termination_reason(ended)),
                None if !waiting.is_empty() && waiting != "PodInitializing" => format!("Init:{waiting}"),
                None => format!("Init:{index}/{}", containers.len()),
            };
            initializing = true;
            break;
        }
        if !initializing || is_condition_true(pod, "Initialized") {
            (self.restarts, self.last_restart) = sidecars;
        }
        initializing
    }

    fn containers(&mut self, pod: &Value) {
        let mut running = false;
        let mut failure = String::new();
        for status in list(pod, "/status/containerStatuses").iter().rev() {
            self.count_restarts(status);
            let waiting = text(status, "/state/waiting/reason");
            if !waiting.is_empty() {
                self.reason = waiting.to_owned();
            } else if let Some(ended) = present(status, "/state/terminated") {
                self.reason = termination_reason(ended);
                if integer(ended, "/exitCode") != 0 {
                    failure.clone_from(&self.reason);
                }
            } else if flag(status, "/ready") && present(status, "/state/running").is_some() {
                running = true;
                self.ready += 1;
            }
        }
        // A completed container does not complete the pod.
        if self.reason == "Completed" {
            if running && is_condition_true(pod, "Ready") {
                self.reason = "Running".to_owned();
            } else if !failure.is_empty() {
                self.reason = failure;
            } else if running {
                self.reason = "NotReady".to_owned();
            }
        }
    }
}

/// Returns the reason of a termination: its reason, else signal or exit code.
fn termination_reason(ended: &Value) -> String {
    match (text(ended, "/reason"), integer(ended, "/signal")) {
        ("", 0) => format!("ExitCode:{}", integer(ended, "/exitCode")),
        ("", signal) => format!("Signal:{signal}"),
        (reason, _) => reason.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::printer::tests::row;

    fn shown(spec: Value, status: Value) -> (String, String, String) {
        let pod = json!({"metadata": {"name": "p"}, "spec": spec, "status": status});
        let cells = row(&COLUMNS, &pod);
        let cell = |index: usize| cells[index].as_str().unwrap().to_owned();
        (cell(1), cell(2), cell(3))
    }

    #[test]
    fn status_column_summarizes_containers() {
        let one = || json!({"containers": [{"name": "a"}]});
        let two = || json!({"containers": [{"name": "a"}, {"name": "b"}]});
        let running = || json!({"name": "a", "ready": true, "state": {"running": {}}});
        let done = |code: i64| json!({"name": "b", "state": {"terminated": {"exitCode": code, "reason": if code == 0 {"Completed"} else {"Error"}}}});
        for (spec, status, expected) in [
            (one(), json!({"phase": "Pending"}), ("0/1", "Pending", "0")),
            (one(), json!({"phase": "Running", "containerStatuses": [running()]}), ("1/1", "Running", "0")),
            (one(), json!({"phase": "Failed", "reason": "Evicted"}), ("0/1", "Evicted", "0")),
            (
                one(),
                json!({"phase": "Pending", "conditions": [{"type": "PodScheduled", "reason": "SchedulingGated"}]}),
                ("0/1", "SchedulingGated", "0"),
            ),
            (
                one(),
                json!({"phase": "Running", "containerStatuses": [{"restartCount": 3, "state": {"waiting": {"reason": "CrashLoopBackOff"}},
                    "lastState": {"terminated": {"finishedAt": "2026-01-01T00:55:00Z"}}}]}),
                ("0/1", "CrashLoopBackOff", "3 (5m ago)"),
            ),
            (
                one(),
                json!({"phase": "Failed", "containerStatuses": [{"state": {"terminated": {"exitCode": 1, "signal": 9}}}]}),
                ("0/1", "Signal:9", "0"),
            ),
            (
                one(),
                json!({"phase": "Failed", "containerStatuses": [{"state": {"terminated": {"exitCode": 2}}}]}),
                ("0/1", "ExitCode:2", "0"),
            ),
            (
                two(),
                json!({"phase": "Running", "containerStatuses": [running(), done(0)]}),
                ("1/2", "NotReady", "0"),
            ),
            (
                two(),
                json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}], "containerStatuses": [running(), done(0)]}),
                ("1/2", "Running", "0"),
            ),
            (
                two(),
                json!({"phase": "Running", "containerStatuses": [done(0), done(1)]}),
                ("0/2", "Error", "0"),
            ),
        ] {
            let (ready, word, restarts) = shown(spec, status);
            assert_eq!((ready.as_str(), word.as_str(), restarts.as_str()), expected);
        }
    }

    #[test]
    fn status_column_prefers_init_containers() {
        let spec = || json!({"containers": [{"name": "a"}], "initContainers": [{"name": "i"}, {"name": "s", "restartPolicy": "Always"}]});
        for (statuses, expected) in [
            (
                json!([{"name": "i", "restartCount": 2, "state": {"waiting": {"reason": "PodInitializing"}}}]),
                ("0/2", "Init:0/2", "2"),
            ),
            (
                json!([{"name": "i", "state": {"waiting": {"reason": "ErrImagePull"}}}]),
                ("0/2", "Init:ErrImagePull", "0"),
            ),
            (
                json!([{"name": "i", "state": {"terminated": {"exitCode": 3}}}]),
                ("0/2", "Init:ExitCode:3", "0"),
            ),
            (
                json!([{"name": "i", "state": {"terminated": {"exitCode": 3, "signal": 15}}}]),
                ("0/2", "Init:Signal:15", "0"),
            ),
            (
                json!([{"name": "i", "restartCount": 1, "state": {"terminated": {"exitCode": 0}}}, {"name": "s", "restartCount": 4, "started": true, "ready": true}]),
                ("1/2", "Pending", "4"),
            ),
        ] {
            let (ready, word, restarts) =
                shown(spec(), json!({"phase": "Pending", "initContainerStatuses": statuses}));
            assert_eq!((ready.as_str(), word.as_str(), restarts.as_str()), expected);
        }
    }

    #[test]
    fn deleted_pod_prints_as_terminating() {
        let pod = |reason: &str, phase: &str| json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}, "status": {"phase": phase, "reason": reason}});
        assert_eq!(row(&COLUMNS, &pod("", "Running"))[2], "Terminating");
        assert_eq!(row(&COLUMNS, &pod("NodeLost", "Running"))[2], "Unknown");
        assert_eq!(row(&COLUMNS, &pod("", "Succeeded"))[2], "Succeeded");
    }

    #[test]
    fn wide_columns_print_none_for_absent_fields() {
        let pod = json!({"spec": {"nodeName": "n", "readinessGates": [{"conditionType": "x"}, {"conditionType": "y"}]},
            "status": {"podIPs": [{"ip": "10.0.0.1"}], "conditions": [{"type": "x", "status": "True"}]}});
        assert_eq!(row(&COLUMNS, &pod)[5..], ["10.0.0.1", "n", "<none>", "1/2"]);
        assert_eq!(row(&COLUMNS, &json!({}))[5..], ["<none>", "<none>", "<none>", "<none>"]);
    }
}
