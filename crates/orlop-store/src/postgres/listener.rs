//! The session that listens for other processes' writes and holds the leader lock.
//!
//! Both last as long as a session, so they share one. When it is lost it is reopened; until then this process is not the
//! leader, and polls for changes.

use std::{
    future::poll_fn,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::{
    sync::Notify,
    task::JoinHandle,
    time::{Instant, timeout},
};
use tokio_postgres::{AsyncMessage, Client};

use super::{
    connection::{Backoff, Connector, Driver},
    db_error::DbError,
    lock_key::lock_key,
    speculation::Listeners,
};

const LEADER_LOCK: i32 = i32::from_be_bytes(*b"orll");
/// Timeout of the check that the session is alive.
const CHECK_TIMEOUT: Duration = Duration::from_secs(5);
/// Time for which the result of a check is reused.
const CHECK_VALIDITY: Duration = Duration::from_millis(500);

/// The listening session.
#[derive(Debug)]
pub(super) struct Listener {
    shared: Arc<Shared>,
    lock_key: i32,
    task: JoinHandle<()>,
}

#[derive(Debug)]
struct Shared {
    changed: Notify,
    listeners: Arc<Listeners>,
    session: Mutex<Option<LeaderSession>>,
}

#[derive(Clone, Debug)]
struct LeaderSession {
    client: Arc<Client>,
    /// Result and time of the last check of the leader lock.
    is_leader: Option<(bool, Instant)>,
}

impl Listener {
    pub(super) fn start(connector: Arc<Connector>, listeners: Arc<Listeners>) -> Self {
        let shared = Arc::new(Shared { changed: Notify::new(), listeners, session: Mutex::default() });
        let lock_key = lock_key(connector.schema());
        let task = tokio::spawn(listen(connector, shared.clone()));
        Self { shared, lock_key, task }
    }

    /// Returns when another process may have written, or after the poll interval.
    pub(super) async fn changed(&self, poll_interval: Duration) {
        let _ = timeout(poll_interval, self.shared.changed.notified()).await;
    }

    /// Returns whether this process is the leader. It stays the leader until its session ends.
    pub(super) async fn is_leader(&self) -> bool {
        let Some(session) = self.shared.session() else { return false };
        if let Some((is_leader, checked)) = session.is_leader
            && checked.elapsed() < CHECK_VALIDITY
            && !session.client.is_closed()
        {
            return is_leader;
        }
        let response = timeout(CHECK_TIMEOUT, self.check(&session)).await;
        let is_leader = matches!(response, Ok(Ok(true)));
        self.shared.set_leader(&session.client, is_leader);
        is_leader
    }

    /// Tries to take the lock, or checks that the session that holds it is alive.
    async fn check(&self, session: &LeaderSession) -> Result<bool, tokio_postgres::Error> {
        if let Some((true, _)) = session.is_leader {
            return session.client.batch_execute("").await.map(|()| true);
        }
        let row = session
            .client
            .query_one("select pg_try_advisory_lock($1, $2)", &[&LEADER_LOCK, &self.lock_key])
            .await?;
        row.try_get(0)
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Shared {
    fn session(&self) -> Option<LeaderSession> {
        self.session.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Records the result of a check, unless the session was replaced.
    fn set_leader(&self, client: &Arc<Client>, is_leader: bool) {
        let mut session = self.session.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(session) = &mut *session
            && Arc::ptr_eq(&session.client, client)
        {
            session.is_leader = Some((is_leader, Instant::now()));
        }
    }

    fn set_session(&self, session: Option<LeaderSession>) {
        *self.session.lock().unwrap_or_else(PoisonError::into_inner) = session;
    }
}

/// Keeps a listening session open, for ever.
async fn listen(connector: Arc<Connector>, shared: Arc<Shared>) {
    let mut backoff = Backoff::new();
    loop {
        let listened = async {
            let (client, driver) = connector.open().await?;
            run_session(&connector, &shared, client, driver).await
        };
        let connected = Instant::now();
        if let Err(error) = listened.await {
            tracing::debug!(?error, "not listening to PostgreSQL now");
        }
        shared.set_session(None);
        if connected.elapsed() > CHECK_TIMEOUT {
            backoff = Backoff::new();
        }
        backoff.wait().await;
    }
}

/// Runs one session until it ends.
async fn run_session(
    connector: &Connector,
    shared: &Shared,
    client: Client,
    mut driver: Driver,
) -> Result<(), DbError> {
    let client = Arc::new(client);
    let set_up = async {
        let listen = format!("{}; listen \"{}\"", connector.settings(), connector.schema());
        client.batch_execute(&listen).await?;
        shared.listeners.register(&client).await?;
        shared.set_session(Some(LeaderSession { client: client.clone(), is_leader: None }));
        // Writes from before this session was registered were not notified.
        shared.changed.notify_one();
        std::future::pending::<Result<(), DbError>>().await
    };
    let messages = async {
        loop {
            match poll_fn(|context| driver.poll_message(context)).await {
                Some(Ok(AsyncMessage::Notification(notification))) => {
                    if !shared.listeners.is_own_writer(notification.process_id()) {
                        shared.changed.notify_one();
                    }
                }
                Some(Ok(_)) => {}
                Some(Err(error)) => return Err(error.into()),
                None => return Ok(()),
            }
        }
    };
    tokio::select! {
        ended = set_up => ended,
        ended = messages => ended,
    }
}
