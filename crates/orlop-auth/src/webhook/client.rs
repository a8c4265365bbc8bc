//! A webhook that a kubeconfig file names: posts, with retries.

use std::{
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use bytes::Bytes;
use http::{Request, header};
use serde_json::Value;

use super::{
    client_config::{ClientConfig, ClientConfigError},
    transport::{Answer, Failure, Transport},
};
use crate::files::Files;

/// Maximum bytes of an answer: a review is small.
const ANSWER_BYTES_MAX: usize = 4 << 20;
/// Limit on one attempt, as in Kubernetes.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(30);

/// Retries of a webhook. The delay grows by half with each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// Delay before the second attempt.
    pub initial: Duration,
    /// Number of attempts.
    pub attempts: u32,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { initial: Duration::from_millis(500), attempts: 5 }
    }
}

impl Backoff {
    /// Returns the delay after an attempt, counted from zero: 1.5 times the one before, and up to a fifth more.
    pub fn delay(&self, attempt: u32) -> Duration {
        let jitter = 1.0 + rand::random_range(0.0..0.2);
        self.initial.mul_f64(1.5_f64.powi(attempt.min(16).cast_signed()) * jitter)
    }
}

/// Failure of a webhook.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct WebhookError {
    /// The cause, as client-go words it.
    pub message: String,
    /// HTTP status, if there was an answer.
    pub code: Option<u16>,
    /// True if another attempt may succeed.
    is_transient: bool,
}

impl WebhookError {
    fn permanent(message: String) -> Self {
        Self { message, code: None, is_transient: false }
    }
}

impl From<ClientConfigError> for WebhookError {
    fn from(error: ClientConfigError) -> Self {
        Self::permanent(error.to_string())
    }
}

/// One attempt of a call, for metrics.
#[derive(Clone, Copy, Debug)]
pub struct Attempt {
    /// HTTP status; `None` if there was no answer.
    pub code: Option<u16>,
    /// Duration.
    pub latency: Duration,
}

/// Posts JSON to the webhook of a kubeconfig. Credentials follow their files.
#[derive(Debug)]
pub struct WebhookClient {
    kubeconfig: PathBuf,
    backoff: Backoff,
    attempt_timeout: Duration,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    loaded: Arc<Loaded>,
    files: Files,
}

#[derive(Debug)]
struct Loaded {
    config: ClientConfig,
    transport: Transport,
}

impl WebhookClient {
    /// Reads a kubeconfig file.
    pub fn from_kubeconfig(kubeconfig: PathBuf, backoff: Backoff) -> Result<Self, WebhookError> {
        let state = Mutex::new(load(&kubeconfig)?);
        Ok(Self { kubeconfig, backoff, attempt_timeout: ATTEMPT_TIMEOUT, state })
    }

    /// Sets the limit on one attempt.
    #[must_use]
    pub fn with_attempt_timeout(mut self, timeout: Duration) -> Self {
        self.attempt_timeout = timeout;
        self
    }

    /// Returns the URL of the webhook.
    pub fn url(&self) -> String {
        self.current().config.url.clone()
    }

    /// Posts a value, and returns the answer's.
    pub async fn post(&self, value: &Value) -> Result<Value, WebhookError> {
        self.post_observed(value, |_| {}).await
    }

    /// Posts a value, and tells `observe` of each attempt.
    pub async fn post_observed(
        &self,
        value: &Value,
        observe: impl Fn(Attempt) + Send,
    ) -> Result<Value, WebhookError> {
        let body = Bytes::from(value.to_string());
        let mut attempt = 0;
        loop {
            let started = Instant::now();
            let answered = self.attempt(body.clone()).await;
            let code = answered.as_ref().map_or_else(|error| error.code, |(code, _)| Some(*code));
            observe(Attempt { code, latency: started.elapsed() });
            match answered {
                Ok((_, answer)) => return Ok(answer),
                Err(error) if error.is_transient && attempt + 1 < self.backoff.attempts => {
                    tokio::time::sleep(self.backoff.delay(attempt)).await;
                    attempt += 1;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Posts a body once, without retries. Any answer of the 200s is success, whatever its body.
    pub async fn send(&self, body: Bytes) -> Result<(), WebhookError> {
        self.attempt_raw(body, Answer::check).await.map(|_| ())
    }

    async fn attempt(&self, body: Bytes) -> Result<(u16, Value), WebhookError> {
        self.attempt_raw(body, Answer::json).await
    }

    async fn attempt_raw<T>(
        &self,
        body: Bytes,
        read: impl FnOnce(&Answer) -> Result<T, String>,
    ) -> Result<(u16, T), WebhookError> {
        let loaded = self.current();
        let ClientConfig { url, origin, path, authorization, .. } = &loaded.config;
        let unsent = |why: &dyn std::fmt::Display| WebhookError::permanent(format!("Post {url:?}: {why}"));
        let mut request = Request::post(path)
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::ACCEPT, "application/json, */*");
        if let Some(authorization) = authorization {
            request = request.header(header::AUTHORIZATION, authorization);
        }
        let request = request.body(body).map_err(|error| unsent(&error))?;
        let sent = tokio::time::timeout(self.attempt_timeout, loaded.transport.send(origin, request)).await;
        match sent {
            Err(_) => Err(unsent(&"context deadline exceeded")),
            Ok(Err(Failure::Reset(why))) => Err(WebhookError { is_transient: true, ..unsent(&why) }),
            Ok(Err(failure)) => Err(unsent(&failure)),
            Ok(Ok(answer)) => {
                let code = answer.status.as_u16();
                let is_transient =
                    matches!(code, 429 | 500 | 504) || answer.headers.contains_key(header::RETRY_AFTER);
                let failed = |message| WebhookError { message, code: Some(code), is_transient };
                read(&answer).map(|value| (code, value)).map_err(failed)
            }
        }
    }

    /// Returns the configuration, read again if its files changed. One that cannot be read leaves the last.
    fn current(&self) -> Arc<Loaded> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.files.changed() {
            match load(&self.kubeconfig) {
                Ok(loaded) => *state = loaded,
                Err(error) => tracing::warn!(%error, "cannot reload the kubeconfig of a webhook"),
            }
        }
        state.loaded.clone()
    }
}

fn load(kubeconfig: &std::path::Path) -> Result<State, WebhookError> {
    // The first reading tells the files; the second one notices a change during the first.
    let files = Files::new(ClientConfig::read(kubeconfig)?.files);
    let config = ClientConfig::read(kubeconfig)?;
    let transport = Transport::new(config.trust.clone(), config.identity.clone(), ANSWER_BYTES_MAX);
    transport.check().map_err(|why| WebhookError::permanent(format!("{}: {why}", kubeconfig.display())))?;
    Ok(State { loaded: Arc::new(Loaded { config, transport }), files })
}
