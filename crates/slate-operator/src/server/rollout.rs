//! Phase of a server, from its Deployment, pods and volume.

use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{ContainerStatus, PersistentVolumeClaim, Pod},
};

use crate::api::Phase;

/// Longest part of a crashed server's log in a message.
const SUMMARY_CHARS_MAX: usize = 300;

/// State of a rollout.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Observed {
    pub(super) phase: Phase,
    pub(super) reason: &'static str,
    pub(super) message: String,
    pub(super) boot_id: Option<String>,
}

impl Observed {
    pub(super) fn ready(boot_id: String) -> Self {
        let message = "serving".to_owned();
        Self { phase: Phase::Ready, reason: "Serving", message, boot_id: Some(boot_id) }
    }

    pub(super) fn in_rollout(message: String) -> Self {
        Self { phase: Phase::Rollout, reason: "RollingOut", message, boot_id: None }
    }

    pub(super) fn failed(reason: &'static str, message: String) -> Self {
        Self { phase: Phase::Error, reason, message, boot_id: None }
    }
}

/// Returns true if the Deployment's present generation is fully rolled out.
pub(super) fn is_complete(deployment: &Deployment) -> bool {
    let Some(status) = &deployment.status else { return false };
    let desired = deployment.spec.replicas.unwrap_or(1);
    let count = |count: Option<i32>| count.unwrap_or(0);
    status.observed_generation >= deployment.metadata.generation
        && count(status.replicas) == desired
        && count(status.updated_replicas) == desired
        && count(status.ready_replicas) == desired
}

/// Derives the phase of an incomplete rollout, with the cause.
pub(super) fn diagnose(
    deployment: &Deployment,
    pods: &[Pod],
    claim: Option<&PersistentVolumeClaim>,
) -> Observed {
    // The newest pod is the one that is rolling out.
    let newest = pods.iter().max_by_key(|pod| pod.metadata.creation_timestamp.as_ref().map(|time| time.0));
    if let Some(failure) = newest.and_then(pod_failure) {
        return failure;
    }
    let claim_phase = claim.and_then(|claim| claim.status.as_ref()?.phase.clone());
    match claim_phase.as_deref() {
        Some("Lost") => return Observed::failed("VolumeLost", "the volume is lost".to_owned()),
        Some("Bound") | None => {}
        Some(phase) => {
            let name = claim.and_then(|claim| claim.metadata.name.as_deref()).unwrap_or_default();
            let class = claim.and_then(|claim| claim.spec.as_ref()?.storage_class_name.as_deref());
            let class = class.map(|class| format!(" (storage class {class:?})")).unwrap_or_default();
            return Observed {
                reason: "VolumePending",
                ..Observed::in_rollout(format!("the volume is {phase}: claim {name:?} is not bound{class}"))
            };
        }
    }
    if let Some(message) = condition(deployment, "ReplicaFailure", "True") {
        return Observed::failed("ReplicaFailure", message);
    }
    if let Some(message) = condition(deployment, "Progressing", "False") {
        let scheduling = newest.and_then(unschedulable).unwrap_or_default();
        return Observed::failed(
            "ProgressDeadlineExceeded",
            format!("{message} {scheduling}").trim_end().to_owned(),
        );
    }
    let message = match newest {
        None => "waiting for a pod".to_owned(),
        Some(pod) => unschedulable(pod).unwrap_or_else(|| "waiting for the pod to become ready".to_owned()),
    };
    Observed::in_rollout(message)
}

fn pod_failure(pod: &Pod) -> Option<Observed> {
    let statuses = pod.status.as_ref()?.container_statuses.as_ref()?;
    statuses.iter().find_map(container_failure)
}

fn container_failure(status: &ContainerStatus) -> Option<Observed> {
    let waiting = status.state.as_ref()?.waiting.as_ref()?;
    let detail = waiting.message.as_deref().unwrap_or_default();
    match waiting.reason.as_deref()? {
        "ErrImagePull" | "ImagePullBackOff" | "InvalidImageName" | "ErrImageNeverPull" => Some(
            Observed::failed("ImageNotFound", format!("image {:?} cannot be pulled: {detail}", status.image)),
        ),
        "CrashLoopBackOff" => {
            let last = status.last_state.as_ref().and_then(|state| state.terminated.as_ref());
            let cause = last.map_or_else(String::new, |last| {
                let detail = last.message.as_deref().or(last.reason.as_deref()).unwrap_or_default();
                format!(", last exit code {}: {}", last.exit_code, summary(detail))
            });
            let message = format!("the server crashes ({} restarts{cause})", status.restart_count);
            Some(Observed::failed("CrashLoop", message))
        }
        "CreateContainerConfigError" | "CreateContainerError" | "RunContainerError" => {
            Some(Observed::failed("ContainerError", detail.to_owned()))
        }
        _ => None,
    }
}

/// Joins the last lines of a log.
fn summary(log: &str) -> String {
    let lines: Vec<&str> = log.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let text = lines.join("; ");
    let skipped = text.chars().count().saturating_sub(SUMMARY_CHARS_MAX);
    text.chars().skip(skipped).collect()
}

/// Returns the message of a Deployment's condition if it has that status.
fn condition(deployment: &Deployment, kind: &str, status: &str) -> Option<String> {
    let conditions = deployment.status.as_ref()?.conditions.as_ref()?;
    let found = conditions.iter().find(|condition| {
        condition.type_.as_deref() == Some(kind) && condition.status.as_deref() == Some(status)
    })?;
    found.message.clone()
}

fn unschedulable(pod: &Pod) -> Option<String> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    let condition = conditions
        .iter()
        .find(|condition| condition.type_ == "PodScheduled" && condition.status == "False")?;
    Some(format!("the pod is not scheduled: {}", condition.message.as_deref().unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn diagnose_pod(container: Value) -> Observed {
        let pod: Pod =
            serde_json::from_value(json!({ "status": { "containerStatuses": [container] } })).expect("a pod");
        diagnose(&Deployment::default(), &[pod], None)
    }

    fn container(state: &Value) -> Value {
        json!({ "name": "c", "image": "nope:1", "imageID": "", "ready": false, "restartCount": 4,
                "state": { "waiting": state }, "lastState": { "terminated": { "exitCode": 3 } } })
    }

    #[test]
    fn missing_image_and_crash_loop_set_phase_error() {
        let missing =
            diagnose_pod(container(&json!({ "reason": "ImagePullBackOff", "message": "not found" })));
        assert_eq!((missing.phase, missing.reason), (Phase::Error, "ImageNotFound"));
        assert!(missing.message.contains("nope:1") && missing.message.contains("not found"), "{missing:?}");
        let crashing = diagnose_pod(container(&json!({ "reason": "CrashLoopBackOff" })));
        assert_eq!((crashing.phase, crashing.reason), (Phase::Error, "CrashLoop"));
        assert!(crashing.message.contains("exit code 3"), "{crashing:?}");
        let mut logged = container(&json!({ "reason": "CrashLoopBackOff" }));
        logged["lastState"]["terminated"]["message"] =
            json!("INFO start\n\nslate-server: store rocks: in use\n");
        let message = diagnose_pod(logged).message;
        assert!(
            message.ends_with("exit code 3: INFO start; slate-server: store rocks: in use)"),
            "{message}"
        );
        let starting = diagnose_pod(container(&json!({ "reason": "ContainerCreating" })));
        assert_eq!(starting.phase, Phase::Rollout);
    }

    #[test]
    fn pending_volume_is_a_rollout_and_lost_volume_an_error() {
        let claim = |phase: &str| -> PersistentVolumeClaim {
            serde_json::from_value(json!({
                "metadata": { "name": "main-db-data" },
                "spec": { "storageClassName": "fast" },
                "status": { "phase": phase },
            }))
            .expect("a claim")
        };
        let pending = diagnose(&Deployment::default(), &[], Some(&claim("Pending")));
        assert_eq!((pending.phase, pending.reason), (Phase::Rollout, "VolumePending"));
        assert!(
            pending.message.contains(r#""main-db-data" is not bound (storage class "fast")"#),
            "{pending:?}"
        );
        assert_eq!(diagnose(&Deployment::default(), &[], Some(&claim("Lost"))).phase, Phase::Error);
        assert_eq!(diagnose(&Deployment::default(), &[], Some(&claim("Bound"))).reason, "RollingOut");
    }

    #[test]
    fn replica_failure_and_progress_deadline_set_phase_error() {
        let deployment = |kind: &str, status: &str, message: &str| -> Deployment {
            let condition = json!({ "type": kind, "status": status, "message": message });
            serde_json::from_value(json!({ "status": { "conditions": [condition] } })).expect("a deployment")
        };
        let quota = diagnose(&deployment("ReplicaFailure", "True", "exceeded quota"), &[], None);
        assert_eq!((quota.phase, quota.message.as_str()), (Phase::Error, "exceeded quota"));
        let late = diagnose(&deployment("Progressing", "False", "timed out"), &[], None);
        assert_eq!((late.phase, late.reason), (Phase::Error, "ProgressDeadlineExceeded"));
        assert_eq!(diagnose(&deployment("Progressing", "True", "going"), &[], None).phase, Phase::Rollout);
    }

    #[test]
    fn unschedulable_pod_is_named_in_the_message() {
        let pod: Pod = serde_json::from_value(json!({ "status": { "conditions": [
            { "type": "PodScheduled", "status": "False", "message": "0/3 nodes: insufficient memory" },
        ] } }))
        .expect("a pod");
        let waiting = diagnose(&Deployment::default(), std::slice::from_ref(&pod), None);
        assert_eq!(waiting.phase, Phase::Rollout);
        assert_eq!(waiting.message, "the pod is not scheduled: 0/3 nodes: insufficient memory");
        let condition = json!({ "type": "Progressing", "status": "False", "message": "timed out" });
        let late = serde_json::from_value(json!({ "status": { "conditions": [condition] } })).expect("late");
        let late = diagnose(&late, &[pod], None);
        assert_eq!(late.message, "timed out the pod is not scheduled: 0/3 nodes: insufficient memory");
        assert_eq!(diagnose(&Deployment::default(), &[], None).message, "waiting for a pod");
    }

    #[test]
    fn rollout_is_complete_when_the_present_generation_is_ready() {
        let deployment = |observed: i64, updated: i32, ready: i32| -> Deployment {
            serde_json::from_value(json!({
                "metadata": { "generation": 2 },
                "status": { "observedGeneration": observed, "replicas": 1, "updatedReplicas": updated, "readyReplicas": ready },
            }))
            .expect("a deployment")
        };
        assert!(is_complete(&deployment(2, 1, 1)));
        assert!(!is_complete(&deployment(1, 1, 1)), "an older generation");
        assert!(!is_complete(&deployment(2, 0, 1)), "the old pod is ready");
        assert!(!is_complete(&deployment(2, 1, 0)));
    }
}
