//! Credentials by the default chain of AWS' SDKs: environment, profile, web identity, container, instance.
//!
//! They are cached and renewed before they expire. Nothing here prints a secret.

use std::{
    collections::HashMap,
    env, fs,
    sync::Arc,
    time::{Duration, SystemTime},
};

use orlop_api::time::Time;
use serde_json::{Value, json};
use tokio::sync::{Mutex, OwnedMutexGuard};

use super::{
    error::{Failure, Result},
    transport::Transport,
};

/// Credentials are renewed this long before they expire.
const RENEW_BEFORE: Duration = Duration::from_secs(300);
/// Limit on asking the instance's or container's endpoint.
const METADATA_TIMEOUT: Duration = Duration::from_secs(2);
const IMDS: &str = "http://169.254.169.254";

/// An access key.
#[derive(Clone)]
pub(crate) struct Credentials {
    pub(crate) access_key: String,
    pub(crate) secret_key: String,
    pub(crate) session_token: Option<String>,
    expires: Option<SystemTime>,
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Credentials").field("access_key", &self.access_key).finish_non_exhaustive()
    }
}

impl Credentials {
    /// Returns credentials that do not expire.
    #[cfg(test)]
    pub(crate) fn fixed(access_key: &str, secret_key: &str) -> Self {
        Self {
            access_key: access_key.to_owned(),
            secret_key: secret_key.to_owned(),
            session_token: None,
            expires: None,
        }
    }

    /// Reads the answer of STS or of a metadata endpoint, whose names differ in case only.
    pub(crate) fn from_answer(
        access_key: Option<&str>,
        secret_key: Option<&str>,
        token: Option<&str>,
        expires: Option<&str>,
    ) -> Option<Self> {
        let expires = expires.and_then(|time| {
            let seconds = Time::parse(time)?.seconds_since(Time::from_unix(0));
            Some(SystemTime::UNIX_EPOCH + Duration::from_secs(u64::try_from(seconds).ok()?))
        });
        Some(Self {
            access_key: access_key?.to_owned(),
            secret_key: secret_key?.to_owned(),
            session_token: token.map(str::to_owned),
            expires,
        })
    }

    fn is_fresh(&self) -> bool {
        self.expires.is_none_or(|expires| SystemTime::now() + RENEW_BEFORE < expires)
    }
}

/// A call of STS that yields credentials, made by the client above.
pub(crate) struct StsCall {
    pub(crate) operation: &'static str,
    pub(crate) parameters: Value,
    /// Credentials that sign it; a web identity needs none.
    pub(crate) signer: Option<Credentials>,
}

/// A step of the chain: credentials, or the call of STS that yields them.
pub(crate) enum Found {
    Credentials(Credentials),
    Call(StsCall),
}

/// Environment variables of the credential chain. Tests inject their own.
#[derive(Clone, Debug, Default)]
pub(crate) struct Environment(HashMap<String, String>);

impl Environment {
    /// Returns the variables of this process.
    pub(crate) fn of_process() -> Self {
        Self(env::vars().filter(|(name, _)| name.starts_with("AWS_") || name == "HOME").collect())
    }

    /// Returns given variables.
    pub(crate) fn of(variables: impl IntoIterator<Item = (String, String)>) -> Self {
        Self(variables.into_iter().collect())
    }

    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }
}

/// Finds credentials.
#[derive(Debug)]
pub(crate) struct Chain {
    environment: Environment,
    transport: Arc<Transport>,
    cache: Mutex<HashMap<Option<String>, Credentials>>,
    /// Locks of those that ask, one for each role.
    turns: Mutex<HashMap<Option<String>, Arc<Mutex<()>>>>,
}

impl Chain {
    pub(crate) fn new(environment: Environment, transport: Arc<Transport>) -> Self {
        Self { environment, transport, cache: Mutex::default(), turns: Mutex::default() }
    }

    /// Returns the cached credentials of a role, or of the process itself.
    pub(crate) async fn cached(&self, role: Option<&str>) -> Option<Credentials> {
        let cache = self.cache.lock().await;
        cache.get(&role.map(str::to_owned)).filter(|cached| cached.is_fresh()).cloned()
    }

    pub(crate) async fn cache(&self, role: Option<&str>, credentials: &Credentials) {
        self.cache.lock().await.insert(role.map(str::to_owned), credentials.clone());
    }

    /// Waits for the right to ask for credentials of a role. Whoever had it before may have cached them.
    pub(crate) async fn turn(&self, role: Option<&str>) -> OwnedMutexGuard<()> {
        let turn = self.turns.lock().await.entry(role.map(str::to_owned)).or_default().clone();
        turn.lock_owned().await
    }

    /// Walks the chain.
    pub(crate) async fn find(&self) -> Result<Found> {
        if let Some(found) = self.of_environment() {
            return Ok(Found::Credentials(found));
        }
        if let Some(found) = self.of_profile()? {
            return Ok(found);
        }
        let variable = |name: &str| self.environment.get(name);
        if let (Some(file), Some(role)) = (variable("AWS_WEB_IDENTITY_TOKEN_FILE"), variable("AWS_ROLE_ARN"))
        {
            return web_identity(file, role, variable("AWS_ROLE_SESSION_NAME"));
        }
        if let Some(found) = self.of_container().await? {
            return Ok(Found::Credentials(found));
        }
        if variable("AWS_EC2_METADATA_DISABLED") != Some("true")
            && let Some(found) = self.of_instance().await
        {
            return Ok(Found::Credentials(found));
        }
        Err(Failure::Credentials(
            "none found in environment, profile, web identity, container or instance".to_owned(),
        ))
    }

    fn of_environment(&self) -> Option<Credentials> {
        let variable = |name: &str| self.environment.get(name);
        Credentials::from_answer(
            variable("AWS_ACCESS_KEY_ID"),
            variable("AWS_SECRET_ACCESS_KEY"),
            variable("AWS_SESSION_TOKEN"),
            None,
        )
    }

    fn of_profile(&self) -> Result<Option<Found>> {
        let home = self.environment.get("HOME").unwrap_or_default().to_owned();
        let file = |variable: &str, name: &str| {
            let path = self.environment.get(variable).map(str::to_owned);
            fs::read_to_string(path.unwrap_or_else(|| format!("{home}/.aws/{name}"))).unwrap_or_default()
        };
        let mut profiles = parse_profiles(&file("AWS_CONFIG_FILE", "config"));
        for (name, values) in parse_profiles(&file("AWS_SHARED_CREDENTIALS_FILE", "credentials")) {
            profiles.entry(name).or_default().extend(values);
        }
        let name = self.environment.get("AWS_PROFILE").unwrap_or("default");
        let Some(profile) = profiles.get(name) else { return Ok(None) };
        let keys = |profile: &HashMap<String, String>| {
            let value = |key: &str| profile.get(key).map(String::as_str);
            Credentials::from_answer(
                value("aws_access_key_id"),
                value("aws_secret_access_key"),
                value("aws_session_token"),
                None,
            )
        };
        if let Some(role) = profile.get("role_arn") {
            if let Some(file) = profile.get("web_identity_token_file") {
                return web_identity(file, role, profile.get("role_session_name").map(String::as_str))
                    .map(Some);
            }
            let source = profile.get("source_profile").and_then(|source| profiles.get(source)).and_then(keys);
            let Some(signer) = source.or_else(|| self.of_environment()) else {
                return Err(Failure::Credentials(format!(
                    "profile {name} has a role but no source of credentials"
                )));
            };
            let session = profile.get("role_session_name").map_or("orlop-aws", String::as_str);
            let parameters = json!({"RoleArn": role, "RoleSessionName": session});
            return Ok(Some(Found::Call(StsCall {
                operation: "AssumeRole",
                parameters,
                signer: Some(signer),
            })));
        }
        Ok(keys(profile).map(Found::Credentials))
    }

    async fn of_container(&self) -> Result<Option<Credentials>> {
        let variable = |name: &str| self.environment.get(name);
        let address = match (
            variable("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"),
            variable("AWS_CONTAINER_CREDENTIALS_FULL_URI"),
        ) {
            (Some(path), _) => format!("http://169.254.170.2{path}"),
            (None, Some(address)) => address.to_owned(),
            (None, None) => return Ok(None),
        };
        let token = match variable("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE") {
            Some(file) => fs::read_to_string(file).ok().map(|token| token.trim().to_owned()),
            None => variable("AWS_CONTAINER_AUTHORIZATION_TOKEN").map(str::to_owned),
        };
        let headers: Vec<_> = token.map(|token| ("authorization".to_owned(), token)).into_iter().collect();
        let answer = self.metadata("GET", &address, headers).await?;
        let found = serde_json::from_str(&answer).ok().as_ref().and_then(of_metadata);
        found.map(Some).ok_or_else(|| Failure::Credentials("the container's endpoint sent none".to_owned()))
    }

    /// IMDSv2: a token first, then the role's name, then its credentials.
    async fn of_instance(&self) -> Option<Credentials> {
        let base = self.environment.get("AWS_EC2_METADATA_SERVICE_ENDPOINT").unwrap_or(IMDS);
        let lifetime = vec![("x-aws-ec2-metadata-token-ttl-seconds".to_owned(), "21600".to_owned())];
        let token = self.metadata("PUT", &format!("{base}/latest/api/token"), lifetime).await.ok()?;
        let header = || vec![("x-aws-ec2-metadata-token".to_owned(), token.trim().to_owned())];
        let roles = format!("{base}/latest/meta-data/iam/security-credentials/");
        let role = self.metadata("GET", &roles, header()).await.ok()?;
        let answer = self.metadata("GET", &format!("{roles}{}", role.trim()), header()).await.ok()?;
        of_metadata(&serde_json::from_str(&answer).ok()?)
    }

    async fn metadata(&self, method: &str, address: &str, headers: Vec<(String, String)>) -> Result<String> {
        let send = self.transport.send(method, address, headers, Vec::new());
        let failed = |cause: String| Failure::Credentials(format!("{address}: {cause}"));
        match tokio::time::timeout(METADATA_TIMEOUT, send).await {
            Ok(Ok(answer)) if answer.status == 200 => Ok(answer.text()),
            Ok(Ok(answer)) => Err(failed(format!("HTTP {}", answer.status))),
            Ok(Err(cause)) => Err(failed(cause)),
            Err(_) => Err(failed("no answer".to_owned())),
        }
    }
}

fn of_metadata(answer: &Value) -> Option<Credentials> {
    let text = |field: &str| answer.get(field).and_then(Value::as_str);
    Credentials::from_answer(text("AccessKeyId"), text("SecretAccessKey"), text("Token"), text("Expiration"))
}

fn web_identity(file: &str, role: &str, session: Option<&str>) -> Result<Found> {
    let token = fs::read_to_string(file)
        .map_err(|error| Failure::Credentials(format!("web identity token file {file}: {error}")))?;
    let parameters = json!({"RoleArn": role, "RoleSessionName": session.unwrap_or("orlop-aws"),
        "WebIdentityToken": token.trim()});
    Ok(Found::Call(StsCall { operation: "AssumeRoleWithWebIdentity", parameters, signer: None }))
}

/// Parses AWS' configuration files: `[name]` or `[profile name]`, then `key = value`.
fn parse_profiles(text: &str) -> HashMap<String, HashMap<String, String>> {
    let mut profiles: HashMap<String, HashMap<String, String>> = HashMap::new();
    let mut current = None;
    for line in text.lines().map(str::trim).filter(|line| !line.starts_with(['#', ';'])) {
        if let Some(section) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            let name = section.trim();
            current = Some(name.strip_prefix("profile ").unwrap_or(name).trim().to_owned());
        } else if let (Some(name), Some((key, value))) = (&current, line.split_once('=')) {
            let profile = profiles.entry(name.clone()).or_default();
            profile.insert(key.trim().to_lowercase(), value.trim().to_owned());
        }
    }
    profiles
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chain(variables: &[(&str, &str)]) -> Chain {
        let variables = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let mut all: HashMap<String, String> = variables.collect();
        all.entry("AWS_EC2_METADATA_DISABLED".to_owned()).or_insert("true".to_owned());
        Chain::new(Environment(all), Arc::new(Transport::new(Duration::from_secs(1)).expect("a transport")))
    }

    #[tokio::test]
    async fn environment_comes_first() {
        let chain =
            chain(&[("AWS_ACCESS_KEY_ID", "a"), ("AWS_SECRET_ACCESS_KEY", "s"), ("AWS_ROLE_ARN", "r")]);
        let Ok(Found::Credentials(found)) = chain.find().await else { panic!("no credentials") };
        assert_eq!(found.access_key, "a");
        assert!(!format!("{found:?}").contains("secret"), "no secret in logs");
    }

    #[tokio::test]
    async fn web_identity_is_a_call_without_a_signature() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        fs::write(file.path(), "token\n").expect("written");
        let path = file.path().to_string_lossy().into_owned();
        let chain =
            chain(&[("AWS_WEB_IDENTITY_TOKEN_FILE", &path), ("AWS_ROLE_ARN", "arn:aws:iam::1:role/r")]);
        let Ok(Found::Call(call)) = chain.find().await else { panic!("no call") };
        assert_eq!(call.operation, "AssumeRoleWithWebIdentity");
        assert!(call.signer.is_none());
        assert_eq!(call.parameters["WebIdentityToken"], "token");
    }

    #[tokio::test]
    async fn profile_with_a_role_is_assumed_from_its_source() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let text = "[profile work]\nrole_arn = arn:r\nsource_profile = base\n[base]\naws_access_key_id=k\naws_secret_access_key = s\n";
        fs::write(file.path(), text).expect("written");
        let path = file.path().to_string_lossy().into_owned();
        let chain = chain(&[("AWS_CONFIG_FILE", &path), ("AWS_PROFILE", "work")]);
        let Ok(Found::Call(call)) = chain.find().await else { panic!("no call") };
        assert_eq!(call.operation, "AssumeRole");
        assert_eq!(call.signer.map(|signer| signer.access_key).as_deref(), Some("k"));
    }

    #[tokio::test]
    async fn nothing_found_is_a_failure_and_not_an_end() {
        assert!(matches!(chain(&[]).find().await, Err(Failure::Credentials(_))));
    }
}
