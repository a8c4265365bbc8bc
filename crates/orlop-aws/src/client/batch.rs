//! Calls that take several items at once: those that wait while one is under way go together in the next.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use futures_util::future::BoxFuture;
use tokio::sync::oneshot;

use super::{Failure, Result};

/// Limits of one call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BatchLimits {
    pub(crate) weight_max: usize,
    pub(crate) bytes_max: usize,
}

/// Sends items, and returns the answer that they share.
pub(crate) type BatchCall<'a> = &'a (dyn Fn(Vec<String>) -> BoxFuture<'a, Result<String>> + Sync);

/// An item of a call: its text on the wire, and what it counts for.
#[derive(Clone, Debug)]
pub(crate) struct BatchItem {
    pub(crate) text: String,
    pub(crate) weight: usize,
    pub(crate) bytes: usize,
}

/// Batches by what their calls share, such as a zone.
#[derive(Debug, Default)]
pub(super) struct Batches {
    queues: Mutex<HashMap<String, Arc<Queue>>>,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: Mutex<Vec<Waiting>>,
    /// Held during a call: there is one at a time.
    calling: tokio::sync::Mutex<()>,
}

#[derive(Debug)]
struct Waiting {
    item: BatchItem,
    answer: oneshot::Sender<Result<String>>,
}

impl Batches {
    /// Calls with an item, and with those of others that wait.
    ///
    /// AWS refuses a batch as a whole, so items of a refused one are sent one by one.
    pub(super) async fn call(
        &self,
        key: String,
        limits: BatchLimits,
        item: BatchItem,
        call: BatchCall<'_>,
    ) -> Result<String> {
        let queue =
            self.queues.lock().unwrap_or_else(PoisonError::into_inner).entry(key).or_default().clone();
        let (answer, mut receiver) = oneshot::channel();
        queue.waiting.lock().unwrap_or_else(PoisonError::into_inner).push(Waiting { item, answer });
        let _calling = queue.calling.lock().await;
        loop {
            match receiver.try_recv() {
                Ok(answered) => return answered,
                // The caller that had taken this item was cancelled. Its call may have been sent or not.
                Err(oneshot::error::TryRecvError::Closed) => return Err(cancelled()),
                Err(oneshot::error::TryRecvError::Empty) => {}
            }
            let (items, answers): (Vec<_>, Vec<_>) =
                queue.take(limits).into_iter().map(|waiting| (waiting.item.text, waiting.answer)).unzip();
            match call(items.clone()).await {
                Err(failure) if items.len() > 1 && is_refused(&failure) => {
                    for (item, answer) in items.into_iter().zip(answers) {
                        // A receiver that is gone was cancelled.
                        drop(answer.send(call(vec![item]).await));
                    }
                }
                shared => answers.into_iter().for_each(|answer| drop(answer.send(shared.clone()))),
            }
        }
    }
}

/// True if the content of a call was refused, not the call itself.
fn is_refused(failure: &Failure) -> bool {
    !failure.is_throttled() && !failure.is_unreachable() && !failure.is_denied()
}

fn cancelled() -> Failure {
    Failure::Transport { service: "AWS", operation: "batch", cause: "the call was cancelled".to_owned() }
}

impl Queue {
    /// Takes the items of the next call, the longest waiting first, and one at least.
    fn take(&self, limits: BatchLimits) -> Vec<Waiting> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut weight, mut bytes) = (0, 0);
        let fits = |next: &Waiting| {
            weight += next.item.weight;
            bytes += next.item.bytes;
            weight <= limits.weight_max && bytes <= limits.bytes_max
        };
        let count = waiting.iter().map(fits).take_while(|fits| *fits).count().max(1);
        let count = count.min(waiting.len());
        waiting.drain(..count).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::ApiError;
    use super::*;

    const LIMITS: BatchLimits = BatchLimits { weight_max: 10, bytes_max: 1_000 };

    fn item(text: &str) -> BatchItem {
        BatchItem { text: text.to_owned(), weight: 2, bytes: text.len() }
    }

    fn refused() -> Failure {
        Failure::Api(Box::new(ApiError {
            service: "Route 53",
            operation: "ChangeResourceRecordSets",
            status: 400,
            code: "InvalidChangeBatch".to_owned(),
            message: String::new(),
            request_id: String::new(),
            retry_after: None,
        }))
    }

    /// Calls with twelve items at once. Returns the sizes of the calls and the answers.
    async fn twelve(bad: Option<&'static str>) -> (Vec<usize>, Vec<Result<String>>) {
        let batches = Batches::default();
        let sizes = Mutex::new(Vec::new());
        let send = |items: Vec<String>| -> BoxFuture<'_, Result<String>> {
            sizes.lock().expect("sizes").push(items.len());
            Box::pin(async move {
                tokio::time::sleep(std::time::Duration::from_millis(10)).await;
                match items.iter().any(|item| Some(item.as_str()) == bad) {
                    true => Err(refused()),
                    false => Ok(items.join(",")),
                }
            })
        };
        let calls = (0..12).map(|number| {
            let (batches, send) = (&batches, &send);
            async move { batches.call("zone".to_owned(), LIMITS, item(&number.to_string()), send).await }
        });
        let answers = futures_util::future::join_all(calls).await;
        (sizes.into_inner().expect("sizes"), answers)
    }

    #[tokio::test(start_paused = true)]
    async fn items_that_wait_go_together_within_the_limits() {
        let (sizes, answers) = twelve(None).await;
        // The first goes at once; ten of weight are five items.
        assert_eq!(sizes, [1, 5, 5, 1]);
        assert_eq!(answers[3].as_deref().expect("an answer"), "1,2,3,4,5");
        assert_eq!(answers[11].as_deref().expect("an answer"), "11");
    }

    #[tokio::test(start_paused = true)]
    async fn refused_item_fails_alone() {
        let (_, answers) = twelve(Some("7")).await;
        for (number, answer) in answers.iter().enumerate() {
            assert_eq!(answer.is_err(), number == 7, "{number}: {answer:?}");
        }
        assert_eq!(answers[6].as_deref().expect("an answer"), "6");
    }
}
