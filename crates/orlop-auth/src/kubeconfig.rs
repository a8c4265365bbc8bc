//! The administrator's kubeconfig.

use base64::{Engine, engine::general_purpose::STANDARD};

use crate::pki::Credential;

/// Contents of an administrator's kubeconfig.
#[derive(Clone, Debug)]
pub struct Kubeconfig<'a> {
    /// The server's address.
    pub server: &'a str,
    /// CA certificates of the server.
    pub trusted: &'a str,
    /// TLS server name, if it is not the address.
    pub server_name: Option<&'a str>,
    /// The administrator's client certificate.
    pub certificate: &'a Credential,
    /// The administrator's token.
    pub token: Option<Secret<'a>>,
}

/// Text that is not shown in logs.
#[derive(Clone, Copy)]
pub struct Secret<'a>(pub &'a str);

impl std::fmt::Debug for Secret<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret")
    }
}

/// Returns bytes as a kubeconfig has them.
pub fn encode(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// Returns the client certificate and key in a kubeconfig that [`Kubeconfig::to_yaml`] wrote.
pub fn client_credential(yaml: &str) -> Option<Credential> {
    let data = |field: &str| {
        let line = yaml.lines().find_map(|line| line.trim().strip_prefix(field))?;
        String::from_utf8(STANDARD.decode(line.trim()).ok()?).ok()
    };
    Some(Credential { certificate: data("client-certificate-data:")?, key: data("client-key-data:")? })
}

impl Kubeconfig<'_> {
    /// Returns the file. The context `orlop` uses the certificate, `orlop-token` the token. There is no token without
    /// TLS: kubectl sends no credentials there.
    pub fn to_yaml(&self) -> String {
        let server_name =
            self.server_name.map_or_else(String::new, |name| format!("\n    tls-server-name: {name}"));
        let (token_context, token_user) = match &self.token {
            Some(token) => (
                "- name: orlop-token\n  context:\n    cluster: orlop\n    user: admin-token\n",
                format!("- name: admin-token\n  user:\n    token: {}\n", token.0),
            ),
            None => ("", String::new()),
        };
        format!(
            "apiVersion: v1
kind: Config
clusters:
- name: orlop
  cluster:
    server: {}
    certificate-authority-data: {}{server_name}
contexts:
- name: orlop
  context:
    cluster: orlop
    user: admin
{token_context}current-context: orlop
users:
- name: admin
  user:
    client-certificate-data: {}
    client-key-data: {}
{token_user}",
            self.server,
            encode(self.trusted.as_bytes()),
            encode(self.certificate.certificate.as_bytes()),
            encode(self.certificate.key.as_bytes()),
        )
    }
}
