//! State that all connections share.

use std::{sync::Arc, time::Duration};

use slate::Engine;

use crate::{connection::Limits, cursors::Cursors, metrics::Metrics, scram::Credentials};

/// Shared state of the fronts.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) engine: Engine,
    pub(crate) cursors: Cursors,
    pub(crate) metrics: Metrics,
    /// Token that clients must present, if any.
    pub(crate) token: Option<String>,
    /// The token as a password of MongoDB's protocol.
    pub(crate) credentials: Option<Credentials>,
    /// Name of the store, for clients.
    pub(crate) store: &'static str,
    pub(crate) query_timeout: Duration,
    pub(crate) limits: Arc<Limits>,
}

pub(crate) type SharedContext = Arc<Context>;
