//! Reading of kubeconfig files: the server and the credentials of a client.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use base64::{Engine, engine::general_purpose::STANDARD};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::transport::{Origin, Trust};
use crate::pki::Credential;

/// Larger files are not kubeconfigs.
const FILE_BYTES_MAX: u64 = 16 << 20;
const NO_PLUGINS: &str = "exec and auth-provider credentials are not supported";

/// A kubeconfig file cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{}: {reason}", path.display())]
pub struct ClientConfigError {
    /// The file.
    pub path: PathBuf,
    /// The cause.
    pub reason: String,
}

/// Server and credentials of a kubeconfig's current context. Not `Debug` by derive: it holds secrets.
#[derive(Clone)]
pub struct ClientConfig {
    /// URL of the server.
    pub url: String,
    /// The server to connect to.
    pub origin: Origin,
    /// Path of requests.
    pub path: String,
    /// CAs of the server.
    pub trust: Trust,
    /// Client certificate.
    pub identity: Option<Credential>,
    /// Value of the Authorization header.
    pub authorization: Option<String>,
    /// File of the token in `authorization`.
    pub token_file: Option<PathBuf>,
    /// Credential plugin, as the kubeconfig has it.
    pub exec: Option<Value>,
    /// Headers of impersonation.
    pub impersonation: Vec<(String, String)>,
    /// Namespace of the context.
    pub namespace: Option<String>,
    /// Files that all this was read from.
    pub files: Vec<PathBuf>,
}

impl std::fmt::Debug for ClientConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClientConfig").field("url", &self.url).finish_non_exhaustive()
    }
}

impl ClientConfig {
    /// Returns a client without credentials.
    pub fn new(url: String, origin: Origin, path: String) -> Self {
        Self {
            url,
            origin,
            path,
            trust: Trust::System,
            identity: None,
            authorization: None,
            token_file: None,
            exec: None,
            impersonation: Vec::new(),
            namespace: None,
            files: Vec::new(),
        }
    }

    /// Reads the kubeconfig file of a webhook. Paths in it are relative to it.
    pub fn read(path: &Path) -> Result<Self, ClientConfigError> {
        let failed = |reason: String| ClientConfigError { path: path.to_owned(), reason };
        let metadata = fs::metadata(path).map_err(|error| failed(error.to_string()))?;
        if metadata.len() > FILE_BYTES_MAX {
            return Err(failed("the file is too large".to_owned()));
        }
        let text = fs::read_to_string(path).map_err(|error| failed(error.to_string()))?;
        let folder = path.parent().unwrap_or(Path::new("."));
        let mut config = Self::parse(&text, folder).map_err(failed)?;
        config.files.push(path.to_owned());
        Ok(config)
    }

    fn parse(text: &str, folder: &Path) -> Result<Self, String> {
        let not_one = |error: &dyn std::fmt::Display| format!("not a kubeconfig: {error}");
        let document: Value = serde_saphyr::from_str(text).map_err(|error| not_one(&error))?;
        let config = Self::of(document, folder)?;
        if config.exec.is_some() {
            return Err(NO_PLUGINS.to_owned());
        }
        Ok(config)
    }

    /// Returns the client of a kubeconfig.
    pub fn of(document: Value, folder: &Path) -> Result<Self, String> {
        let config: Config =
            serde_json::from_value(document).map_err(|error| format!("not a kubeconfig: {error}"))?;
        let context = config.current_context.as_deref().filter(|name| !name.is_empty());
        let context = context.ok_or("no current-context is set")?;
        let context =
            find(&config.contexts, context).ok_or_else(|| format!("context {context:?} does not exist"))?;
        let cluster = find(&config.clusters, &context.context.cluster)
            .ok_or_else(|| format!("cluster {:?} does not exist", context.context.cluster))?;
        let user = match context.context.user.as_str() {
            "" => User::default(),
            name => {
                find(&config.users, name).ok_or_else(|| format!("user {name:?} does not exist"))?.user.clone()
            }
        };
        let Cluster { server, tls_server_name, insecure_skip_tls_verify, proxy_url, .. } = &cluster.cluster;
        if !proxy_url.is_empty() {
            return Err("proxy-url is not supported".to_owned());
        }
        if user.auth_provider.is_some() {
            return Err(NO_PLUGINS.to_owned());
        }
        let (mut origin, path) = Origin::of(server)?;
        if !tls_server_name.is_empty() {
            origin.server_name.clone_from(tls_server_name);
        }
        let mut files = Vec::new();
        let mut content = |data: &str, file: &str, field: &str| -> Result<Option<Vec<u8>>, String> {
            if !data.is_empty() {
                let bytes = STANDARD.decode(data.trim());
                return bytes.map(Some).map_err(|error| format!("{field}-data is not base64: {error}"));
            }
            if file.is_empty() {
                return Ok(None);
            }
            let file = folder.join(file);
            let bytes = fs::read(&file).map_err(|error| format!("{field}: {}: {error}", file.display()))?;
            files.push(file);
            Ok(Some(bytes))
        };
        let ca = content(
            &cluster.cluster.certificate_authority_data,
            &cluster.cluster.certificate_authority,
            "certificate-authority",
        )?;
        let trust = match (ca, insecure_skip_tls_verify) {
            (Some(_), true) => {
                return Err(
                    "certificate-authority and insecure-skip-tls-verify exclude each other".to_owned()
                );
            }
            (Some(pem), false) => Trust::Bundle(pem),
            (None, true) => Trust::Anything,
            (None, false) => Trust::System,
        };
        let certificate =
            content(&user.client_certificate_data, &user.client_certificate, "client-certificate")?;
        let key = content(&user.client_key_data, &user.client_key, "client-key")?;
        let text =
            |bytes: Vec<u8>, field: &str| String::from_utf8(bytes).map_err(|_| format!("{field} is not PEM"));
        let identity = match (certificate, key) {
            (None, None) => None,
            (Some(certificate), Some(key)) => Some(Credential {
                certificate: text(certificate, "client-certificate")?,
                key: text(key, "client-key")?,
            }),
            _ => return Err("client-certificate and client-key belong together".to_owned()),
        };
        let token = match content("", &user.token_file, "tokenFile")? {
            Some(bytes) => text(bytes, "tokenFile")?.trim().to_owned(),
            None => user.token.clone(),
        };
        let authorization = match (token.is_empty(), user.username.is_empty()) {
            (false, _) => Some(format!("Bearer {token}")),
            (true, false) => {
                Some(format!("Basic {}", STANDARD.encode(format!("{}:{}", user.username, user.password))))
            }
            (true, true) => None,
        };
        let token_file = (!user.token_file.is_empty()).then(|| folder.join(&user.token_file));
        let namespace = Some(context.context.namespace.clone()).filter(|name| !name.is_empty());
        let impersonation = user.impersonation();
        let new = Self::new(server.clone(), origin, path);
        let exec = user.exec;
        Ok(Self { trust, identity, authorization, token_file, exec, impersonation, namespace, files, ..new })
    }

    /// Returns the CAs of the server in base64, if they are not those of the operating system.
    pub fn ca_data(&self) -> Option<String> {
        match &self.trust {
            Trust::Bundle(pem) => Some(STANDARD.encode(pem)),
            Trust::System | Trust::Anything => None,
        }
    }
}

trait Named {
    fn name(&self) -> &str;
}

fn find<'a, T: Named>(all: &'a [T], name: &str) -> Option<&'a T> {
    all.iter().find(|one| one.name() == name)
}

/// Reads null as the default.
fn or_default<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(
    deserializer: D,
) -> Result<T, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Config {
    #[serde(default)]
    current_context: Option<String>,
    #[serde(default, deserialize_with = "or_default")]
    clusters: Vec<NamedCluster>,
    #[serde(default, deserialize_with = "or_default")]
    contexts: Vec<NamedContext>,
    #[serde(default, deserialize_with = "or_default")]
    users: Vec<NamedUser>,
}

#[derive(Deserialize)]
struct NamedCluster {
    name: String,
    cluster: Cluster,
}

impl Named for NamedCluster {
    fn name(&self) -> &str {
        &self.name
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", default)]
#[derive(Default)]
struct Cluster {
    server: String,
    tls_server_name: String,
    insecure_skip_tls_verify: bool,
    certificate_authority: String,
    certificate_authority_data: String,
    proxy_url: String,
}

#[derive(Deserialize)]
struct NamedContext {
    name: String,
    context: Context,
}

impl Named for NamedContext {
    fn name(&self) -> &str {
        &self.name
    }
}

#[derive(Deserialize)]
struct Context {
    cluster: String,
    #[serde(default, deserialize_with = "or_default")]
    user: String,
    #[serde(default, deserialize_with = "or_default")]
    namespace: String,
}

#[derive(Deserialize)]
struct NamedUser {
    name: String,
    #[serde(default, deserialize_with = "or_default")]
    user: User,
}

impl Named for NamedUser {
    fn name(&self) -> &str {
        &self.name
    }
}

#[derive(Clone, Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
struct User {
    client_certificate: String,
    client_certificate_data: String,
    client_key: String,
    client_key_data: String,
    token: String,
    #[serde(rename = "tokenFile")]
    token_file: String,
    username: String,
    password: String,
    exec: Option<Value>,
    auth_provider: Option<Value>,
    r#as: String,
    as_uid: String,
    as_groups: Vec<String>,
    as_user_extra: BTreeMap<String, Vec<String>>,
}

impl User {
    /// Returns the headers of impersonation.
    fn impersonation(&self) -> Vec<(String, String)> {
        let names = [("Impersonate-User", &self.r#as), ("Impersonate-Uid", &self.as_uid)];
        let names = names.into_iter().filter(|(_, value)| !value.is_empty());
        let groups = self.as_groups.iter().map(|group| ("Impersonate-Group", group));
        let fixed = names.chain(groups).map(|(name, value)| (name.to_owned(), value.clone()));
        let extra = self.as_user_extra.iter().flat_map(|(key, values)| {
            values.iter().map(move |value| (format!("Impersonate-Extra-{key}"), value.clone()))
        });
        fixed.chain(extra).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::webhook::Scheme;

    const CONFIG: &str = "
apiVersion: v1
kind: Config
preferences: {}
current-context: webhook
clusters:
- name: review
  cluster: {server: 'https://review.example.org:8443/authenticate', certificate-authority: ca.crt}
contexts:
- name: webhook
  context: {cluster: review, user: api}
users:
- name: api
  user: {tokenFile: token}
";

    fn read(folder: &Path, text: &str) -> Result<ClientConfig, String> {
        fs::write(folder.join("kubeconfig"), text).unwrap();
        ClientConfig::read(&folder.join("kubeconfig")).map_err(|error| error.reason)
    }

    #[test]
    fn current_context_names_server_and_credentials() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("ca.crt"), "PEM").unwrap();
        fs::write(folder.path().join("token"), "abc\n").unwrap();
        let config = read(folder.path(), CONFIG).unwrap();
        assert_eq!(config.origin.host, "review.example.org");
        assert_eq!((config.origin.scheme, config.origin.port), (Scheme::Https, 8443));
        assert_eq!(config.path, "/authenticate");
        assert_eq!(config.authorization.as_deref(), Some("Bearer abc"));
        assert!(matches!(config.trust, Trust::Bundle(pem) if pem == b"PEM"));
        assert_eq!(config.files.len(), 3);
        let basic = CONFIG.replace("{tokenFile: token}", "{username: a, password: b}");
        assert_eq!(read(folder.path(), &basic).unwrap().authorization.as_deref(), Some("Basic YTpi"));
    }

    #[test]
    fn unusable_kubeconfigs_are_refused_with_a_reason() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("ca.crt"), "PEM").unwrap();
        fs::write(folder.path().join("token"), "abc").unwrap();
        for (from, to, reason) in [
            ("current-context: webhook", "", "no current-context"),
            ("current-context: webhook", "current-context: other", "context \"other\" does not exist"),
            ("cluster: review,", "cluster: other,", "cluster \"other\" does not exist"),
            ("user: api}", "user: other}", "user \"other\" does not exist"),
            ("ca.crt}", "none.crt}", "none.crt"),
            ("ca.crt}", "ca.crt, insecure-skip-tls-verify: true}", "exclude each other"),
            ("ca.crt}", "ca.crt, proxy-url: 'http://p'}", "proxy-url is not supported"),
            ("certificate-authority: ca.crt", "certificate-authority-data: '*'", "not base64"),
            ("{tokenFile: token}", "{tokenFile: none}", "tokenFile"),
            ("{tokenFile: token}", "{exec: {command: x}}", "exec"),
            ("{tokenFile: token}", "{client-certificate: ca.crt}", "belong together"),
            ("https:", "ftp:", "scheme must be https or http"),
            ("clusters:", "clusters: {", "not a kubeconfig"),
        ] {
            let refused = read(folder.path(), &CONFIG.replace(from, to)).unwrap_err();
            assert!(refused.contains(reason), "{to}: {refused}");
        }
        assert!(ClientConfig::read(&folder.path().join("missing")).is_err());
    }
}
