//! Requests to another server, with the credentials of a kubeconfig.

use std::{path::PathBuf, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, combinators::UnsyncBoxBody};
use jiff::{SignedDuration, Timestamp};
use orlop_auth::webhook::{ClientConfig, Origin, Transport};
use serde_json::{Value, json};
use tokio::{sync::Mutex, time::Instant};

use crate::{
    body::Body,
    client::Client,
    config::Config,
    error::{BoxError, ConfigError},
    exec_plugin,
};

/// Limit on the wait for the head of an answer, longer than that of any server.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(75);
/// Times that a request is sent again which the server had no capacity for.
const RETRIES: u32 = 10;
const RETRY_PAUSE_MAX: Duration = Duration::from_secs(10);
/// Age at which a token's file is read again, as in client-go.
const TOKEN_AGE_MAX: Duration = Duration::from_secs(60);
/// Time before the end of a token's validity when a plugin is asked for another.
const TOKEN_MARGIN: SignedDuration = SignedDuration::from_secs(60);

struct Remote {
    transport: Arc<Transport>,
    origin: Origin,
    /// Path that comes before that of every request.
    prefix: String,
    headers: HeaderMap,
    credentials: Credentials,
}

enum Credentials {
    /// In the headers or in TLS, or none.
    Fixed,
    File {
        path: PathBuf,
        read: Mutex<Option<(Instant, HeaderValue)>>,
    },
    Plugin {
        exec: Value,
        cluster: Value,
        /// The token, and when another one is needed.
        issued: Mutex<(HeaderValue, Option<Timestamp>)>,
    },
}

impl Client {
    /// Returns a client of another server.
    pub async fn connect(config: Config) -> Result<Self, ConfigError> {
        connect(config).await
    }
}

async fn connect(config: Config) -> Result<Client, ConfigError> {
    let Config { client: mut config, default_namespace } = config;
    let credentials = credentials(&mut config).await?;
    let mut headers = HeaderMap::new();
    if let Some(authorization) = &config.authorization {
        headers.insert(header::AUTHORIZATION, secret(authorization)?);
    }
    for (name, value) in &config.impersonation {
        let name = HeaderName::try_from(name.as_str());
        let name = name.map_err(|error| ConfigError::Unusable(error.to_string()))?;
        let value = HeaderValue::try_from(value.as_str());
        headers.append(name, value.map_err(|error| ConfigError::Unusable(error.to_string()))?);
    }
    let transport = Transport::new(config.trust, config.identity, usize::MAX);
    transport.check().map_err(ConfigError::Unusable)?;
    let remote = Arc::new(Remote {
        transport: Arc::new(transport),
        origin: config.origin,
        prefix: config.path.trim_end_matches('/').to_owned(),
        headers,
        credentials,
    });
    Ok(Client::of(
        move |request| {
            let remote = remote.clone();
            Box::pin(async move { remote.call(request).await })
        },
        &default_namespace,
    ))
}

/// Returns the credentials of requests. A plugin's client certificate becomes that of `config`.
async fn credentials(config: &mut ClientConfig) -> Result<Credentials, ConfigError> {
    if let Some(path) = config.token_file.take() {
        return Ok(Credentials::File { path, read: Mutex::default() });
    }
    let exec = config.exec.take().filter(|_| config.authorization.is_none());
    let Some(exec) = exec else { return Ok(Credentials::Fixed) };
    let cluster = json!({"server": config.url, "tls-server-name": config.origin.server_name,
        "certificate-authority-data": config.ca_data()});
    let issued = exec_plugin::run(&exec, &cluster).await?;
    if issued.identity.is_some() {
        config.identity = issued.identity;
    }
    match issued.token {
        Some(token) => {
            let issued = Mutex::new((bearer(&token)?, issued.expires));
            Ok(Credentials::Plugin { exec, cluster, issued })
        }
        None => Ok(Credentials::Fixed),
    }
}

fn bearer(token: &str) -> Result<HeaderValue, ConfigError> {
    secret(&format!("Bearer {token}"))
}

fn secret(text: &str) -> Result<HeaderValue, ConfigError> {
    let value = HeaderValue::try_from(text);
    let mut value =
        value.map_err(|_| ConfigError::Unusable("a credential is not valid in a header".to_owned()))?;
    value.set_sensitive(true);
    Ok(value)
}

impl Remote {
    async fn call(&self, request: Request<Bytes>) -> Result<Response<Body>, BoxError> {
        let (mut parts, body) = request.into_parts();
        let path = parts.uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
        parts.uri = format!("{}{path}", self.prefix).parse()?;
        parts.headers.extend(self.headers.clone());
        let mut pause = Duration::from_millis(100);
        let mut retries = RETRIES;
        loop {
            if let Some(token) = self.credentials.token().await? {
                parts.headers.insert(header::AUTHORIZATION, token);
            }
            let request = Request::from_parts(parts.clone(), body.clone());
            let answer = tokio::time::timeout(ANSWER_TIMEOUT, self.transport.open(&self.origin, request));
            let answer = answer.await.map_err(|_| "the server does not answer")?;
            let response = answer.map_err(|failure| failure.to_string())?;
            if retries == 0 || !is_overloaded(response.status()) {
                return Ok(response.map(|body| UnsyncBoxBody::new(body.map_err(BoxError::from))));
            }
            retries -= 1;
            let wanted = response.headers().get(header::RETRY_AFTER).and_then(|value| value.to_str().ok());
            let wanted = wanted.and_then(|seconds| seconds.parse().ok()).map(Duration::from_secs);
            tokio::time::sleep(wanted.unwrap_or(pause).min(RETRY_PAUSE_MAX)).await;
            pause = (pause * 2).min(RETRY_PAUSE_MAX);
        }
    }
}

/// Returns whether the server did not begin with a request.
fn is_overloaded(status: StatusCode) -> bool {
    matches!(
        status,
        StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT
    )
}

impl Credentials {
    /// Returns the value of the Authorization header, where it changes.
    async fn token(&self) -> Result<Option<HeaderValue>, ConfigError> {
        match self {
            Self::Fixed => Ok(None),
            Self::File { path, read } => {
                let mut read = read.lock().await;
                if let Some((at, token)) = &*read
                    && at.elapsed() < TOKEN_AGE_MAX
                {
                    return Ok(Some(token.clone()));
                }
                let content = tokio::task::spawn_blocking({
                    let path = path.clone();
                    move || std::fs::read_to_string(path)
                });
                let content = content.await.map_err(|error| ConfigError::Unusable(error.to_string()))?;
                let content = content.map_err(|source| ConfigError::Read { path: path.clone(), source })?;
                let token = bearer(content.trim())?;
                *read = Some((Instant::now(), token.clone()));
                Ok(Some(token))
            }
            Self::Plugin { exec, cluster, issued } => {
                let mut issued = issued.lock().await;
                let is_old = |expires: Timestamp| Timestamp::now() >= expires - TOKEN_MARGIN;
                if issued.1.is_some_and(is_old) {
                    let renewed = exec_plugin::run(exec, cluster).await?;
                    if let Some(token) = renewed.token {
                        *issued = (bearer(&token)?, renewed.expires);
                    }
                }
                Ok(Some(issued.0.clone()))
            }
        }
    }
}
