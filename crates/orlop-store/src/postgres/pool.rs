//! A few connections that readers and chores share.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::{sync::Semaphore, time::Instant};

use super::{
    connect::{Backoff, Connector, Session},
    fault::Fault,
};
use crate::error::{Error, Result};

/// How long a call tries to reach the database before it is answered `Unavailable`.
const PATIENCE: Duration = Duration::from_secs(10);

/// Connections made when needed, at most so many at a time.
#[derive(Debug)]
pub(super) struct Pool {
    connector: Arc<Connector>,
    idle: Mutex<Vec<Arc<Session>>>,
    permits: Semaphore,
}

impl Pool {
    pub(super) fn new(connector: Arc<Connector>, size: usize) -> Self {
        Self { connector, idle: Mutex::default(), permits: Semaphore::new(size.max(1)) }
    }

    /// Runs a job on a connection of its own, again if the connection was lost under it. So a job must
    /// be one that may happen twice.
    pub(super) async fn run<T, F>(&self, job: impl Fn(Arc<Session>) -> F) -> Result<T>
    where
        F: Future<Output = Result<T, Fault>>,
    {
        let Ok(_permit) = self.permits.acquire().await else {
            return Err(Error::Unavailable("the store is closed".into()));
        };
        let deadline = Instant::now() + PATIENCE;
        let mut backoff = Backoff::new();
        loop {
            let idle = self.take();
            // After a restart of the server every idle connection is dead: that is no reason to wait.
            let fresh = idle.is_none();
            let fault = match self.attempt(idle, &job).await {
                Ok(answer) => return Ok(answer),
                Err(fault) => fault,
            };
            if !fault.passes() || Instant::now() >= deadline {
                return Err(fault.given_up());
            }
            if fresh {
                backoff.wait().await;
            }
        }
    }

    async fn attempt<T, F>(
        &self,
        idle: Option<Arc<Session>>,
        job: &impl Fn(Arc<Session>) -> F,
    ) -> Result<T, Fault>
    where
        F: Future<Output = Result<T, Fault>>,
    {
        let session = match idle {
            Some(session) => session,
            None => Arc::new(self.connector.connect().await?),
        };
        let answer = job(session.clone()).await;
        // After any other fault the session may be inside a transaction; it ends by being dropped.
        if matches!(answer, Ok(_) | Err(Fault::Answer(_))) {
            self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(session);
        }
        answer
    }

    fn take(&self) -> Option<Arc<Session>> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.retain(|session| !session.is_closed());
        idle.pop()
    }
}
