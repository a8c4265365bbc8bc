//! Events about objects, correlated and limited as client-go does.
//!
//! Recording never waits: a bounded queue takes events, and one task of the recorder writes them. Events that find
//! the queue full are dropped.

mod correlator;

use std::{borrow::Cow, sync::Arc};

use correlator::{Correlator, Outcome};
use k8s_openapi::{
    api::core::v1::{Event, EventSeries, EventSource, ObjectReference},
    apimachinery::pkg::apis::meta::v1::{MicroTime, Time},
    jiff::Timestamp,
};
use orlop_client::{
    Api, Client,
    api::{ObjectMeta, Patch, PatchParams, PostParams},
};
use serde_json::json;
use tokio::{sync::mpsc, time::Duration};

use crate::status::is_not_found;

/// Events that wait to be written.
const QUEUE: usize = 1000;
/// Limit on writing one event.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Longest message of an event.
const MESSAGE_MAX: usize = 1024;

/// Form of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventForm {
    /// The shape of most controllers' events: a source, and a count of repetitions.
    Counted,
    /// The shape of events.k8s.io/v1, which the scheduler writes: an action, and a series.
    Series,
}

/// Records events of one component.
#[derive(Clone, Debug)]
pub struct Recorder {
    queue: mpsc::Sender<Record>,
}

/// One occurrence.
#[derive(Clone, Debug)]
struct Record {
    regarding: ObjectReference,
    warning: bool,
    reason: Cow<'static, str>,
    action: &'static str,
    message: String,
    at: Timestamp,
}

impl Recorder {
    pub(super) fn new(client: Client, component: Cow<'static, str>, form: EventForm) -> Self {
        let (queue, records) = mpsc::channel(QUEUE);
        tokio::spawn(write(client, component, form, records));
        Self { queue }
    }

    /// Records an event of type Normal.
    pub fn normal<K: orlop_client::Resource<DynamicType = ()>>(
        &self,
        object: &K,
        reason: &'static str,
        message: impl Into<String>,
    ) {
        self.record(object.object_ref(&()), false, reason, "", message.into());
    }

    /// Records an event of type Warning.
    pub fn warning<K: orlop_client::Resource<DynamicType = ()>>(
        &self,
        object: &K,
        reason: &'static str,
        message: impl Into<String>,
    ) {
        self.record(object.object_ref(&()), true, reason, "", message.into());
    }

    /// Records an event about a reference, with an action.
    pub fn record(
        &self,
        regarding: ObjectReference,
        warning: bool,
        reason: impl Into<Cow<'static, str>>,
        action: &'static str,
        mut message: String,
    ) {
        let reason = reason.into();
        if message.len() > MESSAGE_MAX {
            let end = (0..=MESSAGE_MAX).rev().find(|end| message.is_char_boundary(*end)).unwrap_or(0);
            message.truncate(end);
        }
        let record = Record { regarding, warning, reason, action, message, at: Timestamp::now() };
        if let Err(error) = self.queue.try_send(record) {
            let reason = &error.into_inner().reason;
            tracing::debug!(%reason, "too many events at once; one is dropped");
        }
    }
}

/// Writes events until every recorder is dropped.
async fn write(
    client: Client,
    component: Cow<'static, str>,
    form: EventForm,
    mut records: mpsc::Receiver<Record>,
) {
    let mut correlator = Correlator::default();
    while let Some(record) = records.recv().await {
        let written = match correlator.correlate(&record) {
            Outcome::Drop => continue,
            Outcome::Create { name, message, key } => {
                let event = new_event(&record, name, message, &component, form);
                let created = send(&client, event).await;
                if created.is_err() {
                    correlator.forget(&key);
                }
                created
            }
            Outcome::Repeat { name, message, count, key } => {
                let namespace = namespace(&record.regarding);
                let events: Api<Event> = Api::namespaced(client.clone(), &namespace);
                let now = record.at;
                let patch = match form {
                    EventForm::Counted => {
                        json!({"count": count, "lastTimestamp": Time(now), "message": message})
                    }
                    EventForm::Series => {
                        json!({"series": EventSeries { count: Some(count), last_observed_time: Some(MicroTime(now)) }})
                    }
                };
                let parameters = PatchParams::default();
                let patch = Patch::Merge(patch);
                match tokio::time::timeout(TIMEOUT, events.patch(&name, &parameters, &patch)).await {
                    Ok(Ok(_)) => Ok(()),
                    Ok(Err(error)) if is_not_found(&error) => {
                        // It has expired: begin a new one.
                        correlator.forget(&key);
                        match correlator.correlate(&record) {
                            Outcome::Create { name, message, .. } => {
                                send(&client, new_event(&record, name, message, &component, form)).await
                            }
                            _ => Ok(()),
                        }
                    }
                    Ok(Err(error)) => Err(error.to_string()),
                    Err(_) => Err("timed out".to_owned()),
                }
            }
        };
        if let Err(error) = written {
            tracing::debug!(%error, reason = %record.reason, "event could not be written");
        }
    }
}

async fn send(client: &Client, event: Event) -> Result<(), String> {
    let namespace = event.metadata.namespace.clone().unwrap_or_default();
    let events: Api<Event> = Api::namespaced(client.clone(), &namespace);
    match tokio::time::timeout(TIMEOUT, events.create(&PostParams::default(), &event)).await {
        Ok(created) => created.map(drop).map_err(|error| error.to_string()),
        Err(_) => Err("timed out".to_owned()),
    }
}

/// Returns the namespace of events about an object: its own, or `default`.
fn namespace(regarding: &ObjectReference) -> String {
    let namespace = regarding.namespace.clone().filter(|namespace| !namespace.is_empty());
    namespace.unwrap_or_else(|| "default".to_owned())
}

fn new_event(record: &Record, name: String, message: String, component: &str, form: EventForm) -> Event {
    let type_ = if record.warning { "Warning" } else { "Normal" };
    let mut event = Event {
        metadata: ObjectMeta {
            name: Some(name),
            namespace: Some(namespace(&record.regarding)),
            ..ObjectMeta::default()
        },
        involved_object: record.regarding.clone(),
        type_: Some(type_.to_owned()),
        reason: Some(record.reason.to_string()),
        message: Some(message),
        reporting_component: Some(component.to_owned()),
        ..Event::default()
    };
    match form {
        EventForm::Counted => {
            event.source = Some(EventSource { component: Some(component.to_owned()), host: None });
            event.first_timestamp = Some(Time(record.at));
            event.last_timestamp = Some(Time(record.at));
            event.count = Some(1);
            event.reporting_instance = Some(String::new());
        }
        EventForm::Series => {
            event.event_time = Some(MicroTime(record.at));
            event.action = Some(record.action.to_owned());
            event.reporting_instance = Some(format!("{component}-orlop"));
        }
    }
    event
}

/// Records events of several components of one process.
#[derive(Clone)]
pub(super) struct Recorders {
    client: Client,
}

impl Recorders {
    pub(super) fn new(client: Client) -> Self {
        Self { client }
    }

    pub(super) fn of(&self, component: Cow<'static, str>, form: EventForm) -> Arc<Recorder> {
        Arc::new(Recorder::new(self.client.clone(), component, form))
    }
}
