//! Requests to another server, with the credentials of a kubeconfig.

use std::{
    path::PathBuf,
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, combinators::UnsyncBoxBody};
use jiff::{SignedDuration, Timestamp};
use orlop_auth::{
    files::Files,
    webhook::{ClientConfig, Origin, Transport},
};
use serde_json::{Value, json};
use tokio::{sync::Mutex, time::Instant};

use crate::{
    body::Body,
    client::{Answer, Client},
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
/// Interval at which followed files are checked.
const FILES_INTERVAL: Duration = Duration::from_secs(1);
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

/// The connection of a client to another server. Its configuration can be replaced while the client is in use.
#[derive(Clone)]
pub struct Connection(Arc<RwLock<Arc<Remote>>>);

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Connection")
    }
}

impl Connection {
    /// Sends further requests by another configuration. Those under way, such as watches, go on as they are.
    pub async fn replace(&self, config: Config) -> Result<(), ConfigError> {
        let remote = Arc::new(remote(config.client).await?);
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = remote;
        Ok(())
    }

    /// Follows the files of a configuration for ever: reads it again when one changes, and calls `replaced` with one that is
    /// in use. One that cannot be used leaves the last.
    pub async fn follow(
        &self,
        read: impl Fn() -> Result<Config, ConfigError> + Send + Sync,
        replaced: impl Fn(&Config) + Send + Sync,
    ) {
        // Nobody has looked at the files since the connection was made: the first pass always reads them.
        let mut files: Option<Files> = None;
        loop {
            if files.as_mut().is_none_or(Files::changed_now) {
                match self.reload(&read, &replaced).await {
                    Ok(read_files) => files = Some(read_files),
                    Err(error) => tracing::warn!(%error, "cannot use the changed credentials of the cluster"),
                }
            }
            tokio::time::sleep(FILES_INTERVAL).await;
        }
    }

    async fn reload(
        &self,
        read: impl Fn() -> Result<Config, ConfigError>,
        replaced: impl Fn(&Config),
    ) -> Result<Files, ConfigError> {
        // The first reading tells the files; a change during the second is noticed later.
        let files = Files::new(read()?.client.files);
        let config = read()?;
        self.replace(config.clone()).await?;
        replaced(&config);
        Ok(files)
    }

    fn current(&self) -> Arc<Remote> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Client {
    /// Returns a client of another server.
    pub async fn connect(config: Config) -> Result<Self, ConfigError> {
        Ok(Self::connect_replaceable(config).await?.0)
    }

    /// Returns a client of another server, and its connection.
    pub async fn connect_replaceable(config: Config) -> Result<(Self, Connection), ConfigError> {
        let Config { client: config, default_namespace } = config;
        let connection = Connection(Arc::new(RwLock::new(Arc::new(remote(config).await?))));
        let used = connection.clone();
        let call = move |request| -> Answer {
            let remote = used.current();
            Box::pin(async move { remote.call(request).await })
        };
        Ok((Self::of(call, &default_namespace), connection))
    }
}

async fn remote(mut config: ClientConfig) -> Result<Remote, ConfigError> {
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
    Ok(Remote {
        transport: Arc::new(transport),
        origin: config.origin,
        prefix: config.path.trim_end_matches('/').to_owned(),
        headers,
        credentials,
    })
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
