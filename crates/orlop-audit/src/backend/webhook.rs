//! The webhook backend: batches of events, posted as an EventList.

use std::{
    pin::Pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use orlop_auth::webhook::{Backoff, WebhookClient, WebhookError};
use tokio::{
    sync::{Semaphore, mpsc},
    task::JoinHandle,
    time::Instant,
};

use super::{Backend, BatchOptions, Delivery, Mode, Ticket, TruncateOptions, throttle::TokenBucket};
use crate::{
    event::TYPE_META,
    metrics::{Metrics, Plugin},
};

/// Batches that are sent at once. More wait in the queue.
const BATCHES_IN_FLIGHT_MAX: usize = 16;
/// Bytes of events that wait for the webhook.
const BUFFER_BYTES_MAX: usize = 64 << 20;
/// Time to send what is queued when the server stops.
const CLOSE_MAX: Duration = Duration::from_secs(10);

/// Options of the webhook backend.
#[derive(Clone, Debug)]
pub struct WebhookOptions {
    /// The kubeconfig file that names the webhook.
    pub kubeconfig: std::path::PathBuf,
    /// Delay before the second attempt.
    pub initial_backoff: Duration,
    /// Mode, queue and batches.
    pub batch: BatchOptions,
    /// Limits on the size of events and batches.
    pub truncate: Option<TruncateOptions>,
}

/// Posts events to a webhook.
#[derive(Debug)]
pub struct WebhookBackend {
    sender: Arc<Sender>,
    options: WebhookOptions,
    queue: Mutex<Option<mpsc::Sender<Bytes>>>,
    batches: Mutex<Option<JoinHandle<()>>>,
}

/// Sends batches.
#[derive(Debug)]
struct Sender {
    client: WebhookClient,
    backoff: Backoff,
    metrics: Metrics,
    /// Bytes in the queue.
    queued_bytes: AtomicUsize,
}

impl WebhookBackend {
    /// Reads the kubeconfig and starts the task that sends batches.
    pub fn start(options: WebhookOptions, metrics: Metrics) -> Result<Self, WebhookError> {
        let backoff = Backoff { initial: options.initial_backoff, ..Backoff::default() };
        let client = WebhookClient::from_kubeconfig(options.kubeconfig.clone(), backoff)?;
        let sender = Arc::new(Sender { client, backoff, metrics, queued_bytes: AtomicUsize::new(0) });
        let (mut queue, mut batches) = (None, None);
        if options.batch.mode == Mode::Batch {
            let (offered, events) = mpsc::channel(options.batch.buffer_events_max.max(1));
            let batch_bytes_max = options.truncate.map_or(usize::MAX, |truncate| truncate.batch_bytes_max);
            let batching =
                Batching { sender: sender.clone(), options: options.batch, batch_bytes_max, events };
            queue = Some(offered);
            batches = Some(tokio::spawn(batching.run()));
        }
        Ok(Self { sender, options, queue: Mutex::new(queue), batches: Mutex::new(batches) })
    }

    fn enqueue(&self, event: Bytes) -> bool {
        let bytes = event.len();
        let fits = self.sender.queued_bytes.load(Ordering::Relaxed) + bytes <= BUFFER_BYTES_MAX;
        let queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(queue) = queue.as_ref().filter(|_| fits) else { return false };
        self.sender.queued_bytes.fetch_add(bytes, Ordering::Relaxed);
        let taken = queue.try_send(event).is_ok();
        if !taken {
            self.sender.queued_bytes.fetch_sub(bytes, Ordering::Relaxed);
        }
        taken
    }
}

impl Backend for WebhookBackend {
    fn offer(&self, event: &[u8], delivery: Delivery) -> Ticket {
        let event = Bytes::copy_from_slice(event);
        if self.options.batch.mode == Mode::Batch {
            let taken = self.enqueue(event);
            if !taken {
                self.sender.metrics.lost(Plugin::Buffered, 1);
            }
            return Ticket::Done(taken);
        }
        // A task of its own: the event is sent even if its request waits no longer.
        let sender = self.sender.clone();
        let sent = tokio::spawn(async move { sender.send(vec![event]).await });
        match delivery {
            Delivery::Awaited | Delivery::BeforeResponse => {
                Ticket::Pending(Box::pin(async move { sent.await.unwrap_or(false) }))
            }
            Delivery::Detached => Ticket::Done(true),
        }
    }

    /// Requests wait for their own events.
    fn flush(&self) -> Option<Pin<Box<dyn Future<Output = ()> + Send>>> {
        None
    }

    fn is_strict(&self) -> bool {
        self.options.batch.mode == Mode::BlockingStrict
    }

    fn event_bytes_max(&self) -> Option<usize> {
        self.options.truncate.map(|truncate| truncate.event_bytes_max)
    }

    fn close(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        drop(self.queue.lock().unwrap_or_else(PoisonError::into_inner).take());
        let batches = self.batches.lock().unwrap_or_else(PoisonError::into_inner).take();
        Box::pin(async move {
            let Some(mut batches) = batches else { return };
            if tokio::time::timeout(CLOSE_MAX, &mut batches).await.is_err() {
                batches.abort();
                tracing::warn!("audit events were not sent to the webhook before the server stopped");
            }
        })
    }
}

/// Collects batches from the queue.
struct Batching {
    sender: Arc<Sender>,
    options: BatchOptions,
    batch_bytes_max: usize,
    events: mpsc::Receiver<Bytes>,
}

impl Batching {
    async fn run(mut self) {
        let mut bucket = self.options.throttle.map(TokenBucket::new);
        let in_flight = Arc::new(Semaphore::new(BATCHES_IN_FLIGHT_MAX));
        let mut next = None;
        loop {
            let (batch, open) = self.collect(&mut next).await;
            if !batch.is_empty() {
                if let Some(bucket) = &mut bucket {
                    bucket.take().await;
                }
                let Ok(permit) = in_flight.clone().acquire_owned().await else { return };
                let sender = self.sender.clone();
                tokio::spawn(async move {
                    sender.send(batch).await;
                    drop(permit);
                });
            }
            if !open && next.is_none() {
                break;
            }
        }
        // Returns once every batch is sent or given up.
        let _ = in_flight.acquire_many(BATCHES_IN_FLIGHT_MAX as u32).await;
    }

    /// Collects a batch; false if the queue is closed and empty. `next` is an event that did not fit in the last one.
    async fn collect(&mut self, next: &mut Option<Bytes>) -> (Vec<Bytes>, bool) {
        let (mut batch, mut bytes) = (Vec::new(), 0);
        let Some(first) = (match next.take() {
            Some(first) => Some(first),
            None => self.events.recv().await,
        }) else {
            return (batch, false);
        };
        bytes += first.len();
        batch.push(first);
        let deadline = Instant::now() + self.options.batch_wait_max;
        while batch.len() < self.options.batch_events_max.max(1) {
            match tokio::time::timeout_at(deadline, self.events.recv()).await {
                Ok(Some(event)) if bytes + event.len() > self.batch_bytes_max => {
                    *next = Some(event);
                    break;
                }
                Ok(Some(event)) => {
                    bytes += event.len();
                    batch.push(event);
                }
                Ok(None) => return (batch, false),
                Err(_) => break,
            }
        }
        (batch, true)
    }
}

impl Sender {
    /// Sends a batch, with retries. Every error is retried: a webhook's mistake is no reason to lose events.
    async fn send(&self, batch: Vec<Bytes>) -> bool {
        let (events, body) = (batch.len(), event_list(&batch));
        let bytes: usize = batch.iter().map(Bytes::len).sum();
        drop(batch);
        let mut attempt = 0;
        let sent = loop {
            match self.client.send(body.clone()).await {
                Ok(_) => break true,
                Err(error) if attempt + 1 >= self.backoff.attempts => {
                    tracing::error!(%error, events, "the audit webhook failed: events are lost");
                    self.metrics.lost(Plugin::Webhook, events as u64);
                    break false;
                }
                Err(error) => {
                    tracing::warn!(%error, events, "the audit webhook failed; it will be tried again");
                    tokio::time::sleep(self.backoff.delay(attempt)).await;
                    attempt += 1;
                }
            }
        };
        let _ = self
            .queued_bytes
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |queued| Some(queued.saturating_sub(bytes)));
        sent
    }
}

/// Encodes an EventList. Its items have no type of their own.
fn event_list(events: &[Bytes]) -> Bytes {
    let mut list = Vec::with_capacity(events.iter().map(Bytes::len).sum::<usize>() + 128);
    list.extend_from_slice(br#"{"kind":"EventList","apiVersion":"audit.k8s.io/v1","metadata":{},"items":["#);
    for (index, event) in events.iter().enumerate() {
        if index > 0 {
            list.push(b',');
        }
        let untyped = event.strip_prefix(b"{").and_then(|rest| rest.strip_prefix(TYPE_META.as_bytes()));
        match untyped {
            Some(rest) => {
                list.push(b'{');
                list.extend_from_slice(rest);
            }
            None => list.extend_from_slice(event),
        }
    }
    list.extend_from_slice(b"]}");
    list.into()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn items_of_an_event_list_have_no_type() {
        let event = format!("{{{TYPE_META}\"level\":\"None\"}}");
        let list: serde_json::Value =
            serde_json::from_slice(&event_list(&[event.clone().into(), event.into()])).unwrap();
        assert_eq!(
            (&list["kind"], &list["items"]),
            (&json!("EventList"), &json!([{"level": "None"}, {"level": "None"}]))
        );
    }
}
