//! Runs requests that would block a worker thread on threads of their own.
//!
//! Decoding, patching, applying and validating large objects, compiling the schemas and rules of a
//! CustomResourceDefinition, and managed fields that a conversion webhook must convert take up to seconds. On a
//! worker they would delay every other request: health checks, leases, other tenants. Such requests run as a whole
//! on a thread of their own, at most as many at once as there are processors; the rest wait. Small requests stay on
//! the worker, where they are fastest.
//!
//! Not on the runtime's blocking threads: those are few and read the database, for which these requests wait.
//!
//! A request that passes its deadline is answered then. Its thread stops at the next await.

use std::{
    num::NonZero,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::Arc,
    thread::available_parallelism,
};

use http::Response;
use orlop_api::status::Status;
use tokio::{
    runtime::{Handle, RuntimeFlavor},
    sync::{OwnedSemaphorePermit, Semaphore, oneshot},
};

use super::Request;
use crate::{definitions, http::body::Body, request::Verb};

/// Body size from which a write is off-loaded.
const BODY_BYTES: usize = 64 << 10;
/// Off-loaded requests that may wait for a conversion webhook at once. They use little CPU.
const WEBHOOK_REQUESTS: usize = 32;

/// Limits of off-loaded requests.
#[derive(Clone, Debug)]
pub(crate) struct Offload {
    cpu: Arc<Semaphore>,
    webhook: Arc<Semaphore>,
}

impl Default for Offload {
    fn default() -> Self {
        let processors = available_parallelism().map_or(1, NonZero::get);
        Self {
            cpu: Arc::new(Semaphore::new(processors)),
            webhook: Arc::new(Semaphore::new(WEBHOOK_REQUESTS)),
        }
    }
}

impl Offload {
    /// Returns the limit that a request is off-loaded under; `None` if it stays on its worker.
    fn limit(&self, request: &Request) -> Option<&Arc<Semaphore>> {
        if !matches!(request.attributes.verb, Verb::Create | Verb::Update | Verb::Patch) {
            return None;
        }
        // A runtime of one thread has no workers to spare.
        if Handle::current().runtime_flavor() == RuntimeFlavor::CurrentThread {
            return None;
        }
        if request.kind.blocks_on_conversion() {
            return Some(&self.webhook);
        }
        let heavy = request.body.len() >= BODY_BYTES
            || definitions::is_definition(&request.kind)
            || !request.kind.schema.is_built();
        heavy.then_some(&self.cpu)
    }

    /// Runs the verb of a request, on a thread of its own if need be.
    pub(super) async fn run<F>(
        &self,
        request: Request,
        verb: impl FnOnce(Request) -> F + Send + 'static,
    ) -> Result<Response<Body>, Status>
    where
        F: Future<Output = Result<Response<Body>, Status>> + Send,
    {
        let Some(limit) = self.limit(&request) else { return verb(request).await };
        let permit = limit.clone().acquire_owned().await;
        let permit = permit.map_err(|_| Status::service_unavailable("apiserver is shutting down"))?;
        // Dropped with this future, at the deadline or when the client disconnects.
        let (_running, cancelled) = oneshot::channel::<()>();
        let (sender, receiver) = oneshot::channel();
        let (runtime, span) = (Handle::current(), tracing::Span::current());
        let work = move || {
            let _span = span.entered();
            let answered = catch_unwind(AssertUnwindSafe(|| {
                runtime.block_on(unless_cancelled(verb(request), cancelled, permit))
            }));
            // Nobody receives it after the deadline.
            let _ = sender.send(answered);
        };
        let thread = std::thread::Builder::new().name("orlop-offload".to_owned()).spawn(work);
        thread.map_err(|error| Status::internal(&format!("cannot start a thread: {error}")))?;
        match receiver.await {
            Ok(Ok(answered)) => answered,
            Ok(Err(panic)) => resume_unwind(panic),
            Err(_) => Err(Status::internal("the thread of the request ended")),
        }
    }
}

async fn unless_cancelled(
    verb: impl Future<Output = Result<Response<Body>, Status>>,
    cancelled: oneshot::Receiver<()>,
    _permit: OwnedSemaphorePermit,
) -> Result<Response<Body>, Status> {
    tokio::select! {
        biased;
        _ = cancelled => Err(Status::timeout("request did not complete within the allotted timeout", 0)),
        answered = verb => answered,
    }
}

/// Runs synchronous work on an object of a size. For a large object, other tasks of the worker move to another
/// thread meanwhile.
pub(super) async fn block_for<T>(object_bytes: usize, work: impl FnOnce() -> T) -> T {
    if object_bytes < BODY_BYTES || Handle::current().runtime_flavor() == RuntimeFlavor::CurrentThread {
        return work();
    }
    // Requests start on their connection's task, and get one of their own when they first wait: the other
    // requests of the connection must not wait for this one.
    tokio::task::yield_now().await;
    tokio::task::block_in_place(work)
}
