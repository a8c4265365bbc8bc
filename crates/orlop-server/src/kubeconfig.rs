//! The file that clients find a cluster by: where it is, whom to trust, who they are.

use base64::{Engine, engine::general_purpose::STANDARD};

use crate::pki::Credential;

/// What an administrator's kubeconfig holds.
#[derive(Clone, Debug)]
pub struct Kubeconfig<'a> {
    /// The server's address.
    pub server: &'a str,
    /// The certificates that clients trust it by.
    pub trusted: &'a str,
    /// The name to look for in its certificate, where that is not the address's.
    pub server_name: Option<&'a str>,
    /// The administrator's certificate.
    pub certificate: &'a Credential,
    /// The administrator's token.
    pub token: Secret<'a>,
    /// The server's address without TLS, if it has one.
    pub insecure: Option<&'a str>,
}

/// Text that does not show in logs.
#[derive(Clone, Copy)]
pub struct Secret<'a>(pub &'a str);

impl std::fmt::Debug for Secret<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret")
    }
}

impl Kubeconfig<'_> {
    /// The file. The context `orlop` shows the certificate, `orlop-token` the token; `orlop-insecure` goes
    /// without TLS, where there are no certificates.
    pub fn to_yaml(&self) -> String {
        let server_name =
            self.server_name.map_or_else(String::new, |name| format!("\n    tls-server-name: {name}"));
        let (mut clusters, mut contexts) = (String::new(), String::new());
        clusters.push_str(&format!(
            "- name: orlop\n  cluster:\n    server: {}\n    certificate-authority-data: {}{server_name}\n",
            self.server,
            STANDARD.encode(self.trusted),
        ));
        let mut context = |name: &str, cluster: &str, user: &str| {
            contexts
                .push_str(&format!("- name: {name}\n  context:\n    cluster: {cluster}\n    user: {user}\n"));
        };
        context("orlop", "orlop", "admin");
        context("orlop-token", "orlop", "admin-token");
        if let Some(insecure) = self.insecure {
            clusters.push_str(&format!("- name: orlop-insecure\n  cluster:\n    server: {insecure}\n"));
            context("orlop-insecure", "orlop-insecure", "admin-token");
        }
        format!(
            "apiVersion: v1
kind: Config
clusters:
{clusters}contexts:
{contexts}current-context: orlop
users:
- name: admin
  user:
    client-certificate-data: {}
    client-key-data: {}
- name: admin-token
  user:
    token: {}
",
            STANDARD.encode(&self.certificate.certificate),
            STANDARD.encode(&self.certificate.key),
            self.token.0,
        )
    }
}
