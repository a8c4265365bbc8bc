//! The connection that listens for other processes' writes, and that holds the lock of the one that leads.
//!
//! Both live as long as a session does, so they share one. When it is lost it is made anew; until then this
//! process does not lead, and looks for changes by the clock.

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
    audience::Audience,
    connect::{Backoff, Connector, Wire},
    fault::Fault,
    schema::lock_number,
};

const LEAD_LOCK: i32 = i32::from_be_bytes(*b"orll");
/// How long the server may take to say whether the session is alive.
const ANSWER_MAX: Duration = Duration::from_secs(5);
/// How long an answer to who leads is good for.
const LEAD_KNOWN: Duration = Duration::from_millis(500);

/// The session, and what it has told.
#[derive(Debug)]
pub(super) struct Listener {
    shared: Arc<Shared>,
    lock_number: i32,
    task: JoinHandle<()>,
}

#[derive(Debug)]
struct Shared {
    changed: Notify,
    audience: Arc<Audience>,
    session: Mutex<Option<Held>>,
}

#[derive(Clone, Debug)]
struct Held {
    client: Arc<Client>,
    /// Whether the lock is held, and when that was last looked at.
    leads: Option<(bool, Instant)>,
}

impl Listener {
    pub(super) fn start(connector: Arc<Connector>, audience: Arc<Audience>) -> Self {
        let shared = Arc::new(Shared { changed: Notify::new(), audience, session: Mutex::default() });
        let lock_number = lock_number(connector.schema());
        let task = tokio::spawn(listen(connector, shared.clone()));
        Self { shared, lock_number, task }
    }

    /// Returns when somebody may have written, or after `poll`.
    pub(super) async fn changed(&self, poll: Duration) {
        // An elapsed time is as good an answer.
        let _ = timeout(poll, self.shared.changed.notified()).await;
    }

    /// Whether this process leads. Whoever holds the lock keeps it until its session ends.
    pub(super) async fn leads(&self) -> bool {
        let Some(held) = self.shared.held() else { return false };
        if let Some((leads, looked)) = held.leads
            && looked.elapsed() < LEAD_KNOWN
            && !held.client.is_closed()
        {
            return leads;
        }
        let answer = timeout(ANSWER_MAX, self.ask(&held)).await;
        let leads = matches!(answer, Ok(Ok(true)));
        self.shared.note(&held.client, leads);
        leads
    }

    /// Takes the lock, or makes sure that the session that holds it is alive.
    async fn ask(&self, held: &Held) -> Result<bool, tokio_postgres::Error> {
        if let Some((true, _)) = held.leads {
            return held.client.batch_execute("").await.map(|()| true);
        }
        let row = held
            .client
            .query_one("select pg_try_advisory_lock($1, $2)", &[&LEAD_LOCK, &self.lock_number])
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
    fn held(&self) -> Option<Held> {
        self.session.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Keeps what is known of a session, unless another has taken its place.
    fn note(&self, client: &Arc<Client>, leads: bool) {
        let mut session = self.session.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(held) = &mut *session
            && Arc::ptr_eq(&held.client, client)
        {
            held.leads = Some((leads, Instant::now()));
        }
    }

    fn set(&self, session: Option<Held>) {
        *self.session.lock().unwrap_or_else(PoisonError::into_inner) = session;
    }
}

/// Keeps a listening session, for ever.
async fn listen(connector: Arc<Connector>, shared: Arc<Shared>) {
    let mut backoff = Backoff::new();
    loop {
        let listened = async {
            let (client, wire) = connector.dial().await?;
            drive(&connector, &shared, client, wire).await
        };
        let connected = Instant::now();
        if let Err(fault) = listened.await {
            tracing::debug!(?fault, "not listening to PostgreSQL now");
        }
        shared.set(None);
        if connected.elapsed() > ANSWER_MAX {
            backoff = Backoff::new();
        }
        backoff.wait().await;
    }
}

/// Drives one session until it ends.
async fn drive(connector: &Connector, shared: &Shared, client: Client, mut wire: Wire) -> Result<(), Fault> {
    let client = Arc::new(client);
    let set_up = async {
        let listen = format!("{}; listen \"{}\"", connector.settings(), connector.schema());
        client.batch_execute(&listen).await?;
        shared.audience.join(&client).await?;
        shared.set(Some(Held { client: client.clone(), leads: None }));
        // What happened before the server heard of this session has to be looked for.
        shared.changed.notify_one();
        std::future::pending::<Result<(), Fault>>().await
    };
    let messages = async {
        loop {
            match poll_fn(|context| wire.poll_message(context)).await {
                Some(Ok(AsyncMessage::Notification(told))) => {
                    if !shared.audience.is_own_writer(told.process_id()) {
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
