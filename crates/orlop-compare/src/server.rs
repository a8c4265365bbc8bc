//! Servers: sending requests.

use std::{path::Path, time::Duration};

use anyhow::{Context as _, Result, anyhow};
use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, USER_AGENT};
use orlop_auth::webhook::{ClientConfig, Transport};
use serde_json::Value;

use crate::request::Request;

/// Deadline of a request.
const TIMEOUT: Duration = Duration::from_secs(60);
const ANSWER_BYTES_MAX: usize = 64 << 20;

/// A server.
pub(crate) struct Server {
    config: ClientConfig,
    transport: Transport,
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) code: u16,
    pub(crate) content_type: String,
    pub(crate) warnings: Vec<String>,
    /// The body's JSON, the list of them for a watch, or its text.
    pub(crate) body: Value,
}

impl Server {
    /// Returns the server of a kubeconfig.
    pub(crate) fn connect(kubeconfig: &Path) -> Result<Self> {
        let config = ClientConfig::read(kubeconfig)?;
        let transport = Transport::new(config.trust.clone(), config.identity.clone(), ANSWER_BYTES_MAX);
        transport.check().map_err(|why| anyhow!("{}: {why}", kubeconfig.display()))?;
        Ok(Self { config, transport })
    }

    pub(crate) async fn send(&self, request: &Request) -> Result<Answer> {
        let mut made = http::Request::builder()
            .method(request.method.as_str())
            .uri(&request.path)
            .header(ACCEPT, &request.accept)
            .header(USER_AGENT, "compare/1.0");
        if request.body.is_some() {
            made = made.header(CONTENT_TYPE, &request.content_type);
        }
        if let Some(authorization) = &self.config.authorization {
            made = made.header(AUTHORIZATION, authorization);
        }
        let body = Bytes::from(request.body.clone().unwrap_or_default());
        let made = made.body(body).with_context(|| request.summary())?;
        let answered = tokio::time::timeout(TIMEOUT, self.transport.send(&self.config.origin, made)).await;
        let answer = answered
            .with_context(|| format!("{} did not answer {}", self.config.url, request.summary()))?
            .map_err(|why| anyhow!("{}: {why}: {}", self.config.url, request.summary()))?;
        let header = |name: &http::HeaderName| {
            answer.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned()
        };
        let warnings = answer.headers.get_all("warning").iter();
        Ok(Answer {
            code: answer.status.as_u16(),
            content_type: header(&CONTENT_TYPE),
            warnings: warnings.filter_map(|value| value.to_str().ok()).map(str::to_owned).collect(),
            body: body_of(&answer.body),
        })
    }
}

fn body_of(body: &[u8]) -> Value {
    if let Ok(value) = serde_json::from_slice(body) {
        return value;
    }
    let events = serde_json::Deserializer::from_slice(body).into_iter::<Value>();
    match events.collect::<Result<Vec<_>, _>>() {
        Ok(events) if !events.is_empty() => events.into(),
        _ => String::from_utf8_lossy(body).into_owned().into(),
    }
}
