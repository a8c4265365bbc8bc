//! A small pool of connections for reads and maintenance.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::{sync::Semaphore, time::Instant};

use super::{
    connection::{Backoff, Connector, Session},
    db_error::DbError,
};
use crate::error::{Error, Result};

/// Time of retries before a call fails with `Unavailable`.
const RETRY_TIME: Duration = Duration::from_secs(10);

/// Connections opened on demand, up to a limit.
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

    /// Runs an idempotent job on a connection, and retries it if the connection is lost.
    pub(super) async fn run<T, F>(&self, job: impl Fn(Arc<Session>) -> F) -> Result<T>
    where
        F: Future<Output = Result<T, DbError>>,
    {
        let Ok(_permit) = self.permits.acquire().await else {
            return Err(Error::Unavailable("the store is closed".into()));
        };
        let deadline = Instant::now() + RETRY_TIME;
        let mut backoff = Backoff::new();
        loop {
            let idle = self.take_idle();
            // After a restart of the server every idle connection is dead: those failures need no back-off.
            let fresh = idle.is_none();
            let error = match self.attempt(idle, &job).await {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            if !error.is_transient() || Instant::now() >= deadline {
                return Err(error.into_error());
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
    ) -> Result<T, DbError>
    where
        F: Future<Output = Result<T, DbError>>,
    {
        let session = match idle {
            Some(session) => session,
            None => Arc::new(self.connector.connect().await?),
        };
        let answer = job(session.clone()).await;
        // After any other error the session may be inside a transaction; dropping it ends that.
        if matches!(answer, Ok(_) | Err(DbError::Rejected(_))) {
            self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(session);
        }
        answer
    }

    fn take_idle(&self) -> Option<Arc<Session>> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.retain(|session| !session.is_closed());
        idle.pop()
    }
}
