//! Events about pods and the node, as a kubelet sends them: equal ones are counted, not repeated.

use std::collections::HashMap;

use k8s_openapi::{
    api::core::v1::{Event, EventSource, Node, ObjectReference, Pod, Service},
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time},
    jiff::Timestamp,
};
use orlop_client::{
    Api, Client,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::json;
use tokio::sync::mpsc;

use crate::pods::status::whole_seconds;

/// Events that wait to be sent; further ones are dropped.
const QUEUE: usize = 4096;
/// Events that are remembered in order to count them.
const KNOWN_MAX: usize = 4096;
/// Name of the sender.
const COMPONENT: &str = "kubelet";

/// Severity of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Severity {
    Normal,
    Warning,
}

#[derive(Debug)]
struct Recorded {
    about: ObjectReference,
    severity: Severity,
    reason: &'static str,
    message: String,
    at: Timestamp,
}

/// Sender of events. Nobody waits for it.
#[derive(Clone, Debug)]
pub(crate) struct Recorder(mpsc::Sender<Recorded>);

impl Recorder {
    /// Starts to send events of a node.
    pub(crate) fn start(client: Client, node: String) -> Self {
        let (sender, receiver) = mpsc::channel(QUEUE);
        tokio::spawn(send(client, node, receiver));
        Self(sender)
    }

    /// Records an event about a pod, or about the container at a field path of it.
    pub(crate) fn pod(
        &self,
        pod: &Pod,
        field_path: Option<String>,
        severity: Severity,
        reason: &'static str,
        message: impl Into<String>,
    ) {
        let about = ObjectReference {
            api_version: Some("v1".into()),
            kind: Some("Pod".into()),
            name: pod.metadata.name.clone(),
            namespace: pod.metadata.namespace.clone(),
            uid: pod.metadata.uid.clone(),
            resource_version: pod.metadata.resource_version.clone(),
            field_path,
        };
        self.record(about, severity, reason, message.into());
    }

    /// Records a warning about a service.
    pub(crate) fn service(&self, service: &Service, reason: &'static str, message: impl Into<String>) {
        let about = ObjectReference {
            api_version: Some("v1".into()),
            kind: Some("Service".into()),
            name: service.metadata.name.clone(),
            namespace: service.metadata.namespace.clone(),
            uid: service.metadata.uid.clone(),
            resource_version: service.metadata.resource_version.clone(),
            ..ObjectReference::default()
        };
        self.record(about, Severity::Warning, reason, message.into());
    }

    /// Records an event about the node.
    pub(crate) fn node(
        &self,
        node: &Node,
        severity: Severity,
        reason: &'static str,
        message: impl Into<String>,
    ) {
        let name = node.metadata.name.clone();
        // As a kubelet, which does not know its object's uid when it starts.
        let uid = name.clone();
        let about = ObjectReference { kind: Some("Node".into()), name, uid, ..ObjectReference::default() };
        self.record(about, severity, reason, message.into());
    }

    fn record(&self, about: ObjectReference, severity: Severity, reason: &'static str, message: String) {
        let recorded = Recorded { about, severity, reason, message, at: Timestamp::now() };
        if self.0.try_send(recorded).is_err() {
            tracing::debug!(reason, "too many events wait: one was dropped");
        }
    }
}

type Key = (Option<String>, Option<String>, &'static str, String);

async fn send(client: Client, node: String, mut receiver: mpsc::Receiver<Recorded>) {
    let mut known: HashMap<Key, (String, i32)> = HashMap::new();
    let mut newest = 0;
    while let Some(recorded) = receiver.recv().await {
        let key = (
            recorded.about.uid.clone(),
            recorded.about.field_path.clone(),
            recorded.reason,
            recorded.message.clone(),
        );
        let namespace = recorded.about.namespace.clone().unwrap_or_else(|| "default".into());
        let events: Api<Event> = Api::namespaced(client.clone(), &namespace);
        let at = Time(whole_seconds(recorded.at));
        if let Some((name, count)) = known.get_mut(&key) {
            *count += 1;
            let patch = Patch::Merge(json!({"count": *count, "lastTimestamp": at}));
            let patched = events.patch(name, &PatchParams::default(), &patch).await;
            // One that has expired is created again.
            if !matches!(&patched, Err(orlop_client::Error::Api(status)) if status.code == 404) {
                continue;
            }
        }
        // Names are in the order of time: times of events are whole seconds, and kubectl keeps the order of the list.
        newest = i128::max(newest + 1, recorded.at.as_nanosecond());
        let event = event(&node, newest, recorded, at);
        let name = event.metadata.name.clone().unwrap_or_default();
        match events.create(&PostParams::default(), &event).await {
            Ok(_) => {
                if known.len() >= KNOWN_MAX {
                    known.clear();
                }
                known.insert(key, (name, 1));
            }
            // The namespace may be gone, or going.
            Err(error) => tracing::debug!(%error, "cannot send an event"),
        }
    }
}

fn event(node: &str, number: i128, recorded: Recorded, at: Time) -> Event {
    let name = recorded.about.name.clone().unwrap_or_default();
    let namespace = recorded.about.namespace.clone().unwrap_or_else(|| "default".into());
    Event {
        metadata: ObjectMeta {
            name: Some(format!("{name}.{number:016x}")),
            namespace: Some(namespace),
            ..ObjectMeta::default()
        },
        involved_object: recorded.about,
        reason: Some(recorded.reason.to_owned()),
        message: Some(recorded.message),
        type_: Some(if recorded.severity == Severity::Normal { "Normal" } else { "Warning" }.to_owned()),
        count: Some(1),
        first_timestamp: Some(at.clone()),
        last_timestamp: Some(at),
        source: Some(EventSource { component: Some(COMPONENT.into()), host: Some(node.to_owned()) }),
        reporting_component: Some(COMPONENT.into()),
        reporting_instance: Some(node.to_owned()),
        ..Event::default()
    }
}
