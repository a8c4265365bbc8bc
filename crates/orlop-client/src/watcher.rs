//! A list and watch that recovers from failures.
//!
//! The states and their order are those of kube-rs' watcher and client-go's reflector: a list in pages, a watch from its
//! resourceVersion, again from the last one seen when it breaks off, and another list when that one is compacted.

use std::{collections::VecDeque, time::Duration};

use futures_util::{StreamExt, stream, stream::BoxStream};
use kube_core::{
    Status, WatchEvent,
    params::{ListParams, WatchParams},
};
use rand::Rng;
use serde_json::Value;
use tokio::time::Instant;

use crate::{api_of_kind::Untyped, error};

/// Objects listed at a time, as in client-go.
const PAGE: u32 = 500;
/// Time without an event after which a watch is opened again. A server ends it after 290 s at the latest.
const IDLE_MAX: Duration = Duration::from_secs(295);
/// First and longest pause after a failure.
const PAUSE: (Duration, Duration) = (Duration::from_millis(800), Duration::from_secs(30));
/// Time without a failure after which the next pause is the first one again.
const PAUSE_RESET: Duration = Duration::from_secs(120);

/// Result of a step of a watch.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A watch failed. It goes on nevertheless.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The list failed.
    #[error("failed to perform initial object list: {0}")]
    InitialListFailed(#[source] error::Error),
    /// The watch was refused.
    #[error("failed to start watching object: {0}")]
    WatchStartFailed(#[source] error::Error),
    /// The server sent an error.
    #[error("error returned by apiserver during watch: {0}")]
    WatchError(#[source] Box<Status>),
    /// The watch broke off, or an object could not be decoded.
    #[error("watch stream failed: {0}")]
    WatchFailed(#[source] error::Error),
    /// A list or an object has no resourceVersion.
    #[error("no metadata.resourceVersion in watch result (does resource support watch?)")]
    NoResourceVersion,
}

/// A change, or a step of the list that comes first.
#[derive(Clone, Debug)]
pub enum Event<K> {
    /// An object was created or changed.
    Apply(K),
    /// An object was deleted.
    Delete(K),
    /// A list begins: what it does not contain is gone.
    Init,
    /// An object of the list.
    InitApply(K),
    /// The list is complete.
    InitDone,
}

/// Selection of the objects to watch.
#[derive(Clone, Debug, Default)]
pub struct Config {
    label_selector: Option<String>,
    field_selector: Option<String>,
}

impl Config {
    /// Selects objects by labels.
    #[must_use]
    pub fn labels(mut self, selector: &str) -> Self {
        self.label_selector = Some(selector.to_owned());
        self
    }

    /// Selects objects by fields.
    #[must_use]
    pub fn fields(mut self, selector: &str) -> Self {
        self.field_selector = Some(selector.to_owned());
        self
    }
}

type Events = BoxStream<'static, error::Result<WatchEvent<Value>>>;

enum State {
    /// Nothing is known.
    Empty,
    /// A page of the list is being handed on.
    Listing { objects: VecDeque<Value>, next: Next },
    /// All up to the resourceVersion is known, and nothing is watched.
    Listed { resource_version: String },
    /// Changes after the resourceVersion arrive.
    Watching { resource_version: String, events: Events },
}

/// Place where a list goes on.
enum Next {
    /// At its beginning.
    First,
    /// With another page.
    Page(String),
    /// With a watch.
    Watch(String),
}

struct Watcher {
    objects: Untyped,
    config: Config,
    state: State,
    pause: Duration,
    /// Time of the last failure.
    failed: Option<Instant>,
    /// A pause comes before the next step.
    is_pausing: bool,
}

/// Watches objects, for ever.
pub(crate) fn watch(objects: Untyped, config: Config) -> BoxStream<'static, Result<Event<Value>>> {
    let watcher =
        Watcher { objects, config, state: State::Empty, pause: PAUSE.0, failed: None, is_pausing: false };
    stream::unfold(watcher, |mut watcher| async move {
        watcher.pause().await;
        let event = loop {
            if let Some(event) = watcher.step().await {
                break event;
            }
        };
        watcher.is_pausing = event.is_err();
        Some((event, watcher))
    })
    .boxed()
}

impl Watcher {
    /// Waits after a failure, longer after each that follows soon.
    async fn pause(&mut self) {
        if !std::mem::take(&mut self.is_pausing) {
            return;
        }
        if self.failed.is_some_and(|failed| failed.elapsed() > PAUSE_RESET) {
            self.pause = PAUSE.0;
        }
        let jitter = rand::rng().random_range(1.0..2.0);
        tokio::time::sleep(self.pause.mul_f64(jitter).min(PAUSE.1)).await;
        self.pause = (self.pause * 2).min(PAUSE.1);
        self.failed = Some(Instant::now());
    }

    /// Takes a step. Returns none if it has nothing to tell.
    async fn step(&mut self) -> Option<Result<Event<Value>>> {
        match std::mem::replace(&mut self.state, State::Empty) {
            State::Empty => {
                self.state = State::Listing { objects: VecDeque::new(), next: Next::First };
                Some(Ok(Event::Init))
            }
            State::Listing { mut objects, next } => {
                if let Some(object) = objects.pop_front() {
                    self.state = State::Listing { objects, next };
                    return Some(Ok(Event::InitApply(object)));
                }
                match next {
                    Next::Watch(resource_version) => {
                        self.state = State::Listed { resource_version };
                        Some(Ok(Event::InitDone))
                    }
                    Next::First => self.list(None).await,
                    Next::Page(token) => self.list(Some(token)).await,
                }
            }
            State::Listed { resource_version } => {
                let options = WatchParams {
                    label_selector: self.config.label_selector.clone(),
                    field_selector: self.config.field_selector.clone(),
                    bookmarks: true,
                    ..WatchParams::default()
                };
                match self.objects.watch(&options, &resource_version).await {
                    Ok(events) => {
                        self.state = State::Watching { resource_version, events };
                        None
                    }
                    Err(error) => {
                        let is_compacted = matches!(&error, error::Error::Api(status) if status.code == 410);
                        if !is_compacted {
                            self.state = State::Listed { resource_version };
                        }
                        Some(Err(Error::WatchStartFailed(error)))
                    }
                }
            }
            State::Watching { resource_version, events } => self.follow(resource_version, events).await,
        }
    }

    async fn list(&mut self, continue_token: Option<String>) -> Option<Result<Event<Value>>> {
        let options = ListParams {
            label_selector: self.config.label_selector.clone(),
            field_selector: self.config.field_selector.clone(),
            limit: Some(PAGE),
            continue_token,
            ..ListParams::default()
        };
        let list = match self.objects.list(&options).await {
            Ok(list) => list,
            Err(error) => return Some(Err(Error::InitialListFailed(error))),
        };
        let given = |text: Option<String>| text.filter(|text| !text.is_empty());
        let next = match (given(list.metadata.continue_), given(list.metadata.resource_version)) {
            (Some(token), _) => Next::Page(token),
            (None, Some(resource_version)) => Next::Watch(resource_version),
            (None, None) => return Some(Err(Error::NoResourceVersion)),
        };
        self.state = State::Listing { objects: list.items.into(), next };
        None
    }

    async fn follow(&mut self, resource_version: String, mut events: Events) -> Option<Result<Event<Value>>> {
        let event = tokio::time::timeout(IDLE_MAX, events.next()).await;
        // A watch that ends, or is silent for too long, is opened again.
        let Ok(Some(event)) = event else {
            self.state = State::Listed { resource_version };
            return None;
        };
        let (resource_version, told) = match event {
            Ok(WatchEvent::Added(object) | WatchEvent::Modified(object)) => {
                (version_of(&object), Some(Ok(Event::Apply(object))))
            }
            Ok(WatchEvent::Deleted(object)) => (version_of(&object), Some(Ok(Event::Delete(object)))),
            Ok(WatchEvent::Bookmark(bookmark)) => (Some(bookmark.metadata.resource_version), None),
            // The resourceVersion is compacted: another list is needed.
            Ok(WatchEvent::Error(status)) if status.code == 410 => {
                return Some(Err(Error::WatchError(status)));
            }
            Ok(WatchEvent::Error(status)) => (Some(resource_version), Some(Err(Error::WatchError(status)))),
            Err(error) => (Some(resource_version), Some(Err(Error::WatchFailed(error)))),
        };
        let Some(resource_version) = resource_version else { return Some(Err(Error::NoResourceVersion)) };
        self.state = State::Watching { resource_version, events };
        told
    }
}

fn version_of(object: &Value) -> Option<String> {
    let version = object.pointer("/metadata/resourceVersion")?.as_str()?;
    (!version.is_empty()).then(|| version.to_owned())
}
