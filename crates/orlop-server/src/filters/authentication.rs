//! Who asks: by client certificate or bearer token.

use std::sync::Arc;

use http::{HeaderMap, header};
use orlop_api::{object_meta, status::Status};
use serde_json::Value;

use crate::cluster::{Cluster, now};

/// A user, as authorization and audit know it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct User {
    /// The name.
    pub name: String,
    /// The groups.
    pub groups: Vec<String>,
}

impl User {
    /// A user who showed a credential.
    pub fn authenticated(name: impl Into<String>, groups: impl IntoIterator<Item = String>) -> Self {
        let mut groups: Vec<String> = groups.into_iter().collect();
        groups.push("system:authenticated".to_owned());
        Self { name: name.into(), groups }
    }

    /// One who may do everything.
    pub fn master(name: impl Into<String>) -> Self {
        Self::authenticated(name, ["system:masters".to_owned()])
    }

    /// One who showed none.
    pub fn anonymous() -> Self {
        Self { name: "system:anonymous".into(), groups: vec!["system:unauthenticated".into()] }
    }

    /// Whether a user may do everything.
    pub fn is_master(&self) -> bool {
        self.groups.iter().any(|group| group == "system:masters")
    }
}

/// Who has what token.
#[derive(Clone, Default)]
pub struct Tokens(Arc<Vec<(String, User)>>);

impl std::fmt::Debug for Tokens {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Tokens stay out of logs.
        write!(f, "Tokens({})", self.0.len())
    }
}

impl Tokens {
    /// Tokens and whose they are.
    pub fn new(tokens: Vec<(String, User)>) -> Self {
        Self(Arc::new(tokens))
    }

    fn user(&self, token: &str) -> Option<User> {
        // Every token is compared, each in constant time: an answer's delay must not tell how much was right.
        let mut found = None;
        for (known, user) in self.0.iter() {
            if same(known.as_bytes(), token.as_bytes()) {
                found = Some(user.clone());
            }
        }
        found
    }
}

fn same(left: &[u8], right: &[u8]) -> bool {
    left.len() == right.len() && left.iter().zip(right).fold(0, |all, (a, b)| all | (a ^ b)) == 0
}

/// Finds out who asks. A bad credential is refused; none at all makes an anonymous user.
pub(crate) async fn authenticate(
    cluster: &Cluster,
    headers: &HeaderMap,
    certificate: Option<&User>,
    tokens: &Tokens,
) -> Result<User, Status> {
    if let Some(user) = certificate {
        return Ok(user.clone());
    }
    let Some(value) = headers.get(header::AUTHORIZATION) else { return Ok(User::anonymous()) };
    let value = value.to_str().map_err(|_| Status::unauthorized())?;
    let token = value.split_once(' ').filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
    let Some((_, token)) = token else { return Err(Status::unauthorized()) };
    match tokens.user(token.trim()) {
        Some(user) => Ok(user),
        None => service_account(cluster, token.trim()).await.ok_or_else(Status::unauthorized),
    }
}

/// The service account of a token, if it is still the one that the token was signed for.
pub(crate) async fn service_account(cluster: &Cluster, token: &str) -> Option<User> {
    let claims = cluster.issuer().check(token, now().unix_seconds)?;
    let text = |path: &str| claims.pointer(path).and_then(Value::as_str);
    let namespace = text("/kubernetes.io/namespace")?;
    let name = text("/kubernetes.io/serviceaccount/name")?;
    let kinds = cluster.registry.kinds();
    let account = cluster.find(kinds.get("", "v1", "serviceaccounts")?, namespace, name).await.ok()??;
    let account = account.as_stored().ok()?;
    if text("/kubernetes.io/serviceaccount/uid") != Some(object_meta::text(object_meta::of(&account), "uid"))
    {
        return None;
    }
    let groups = ["system:serviceaccounts".to_owned(), format!("system:serviceaccounts:{namespace}")];
    Some(User::authenticated(format!("system:serviceaccount:{namespace}:{name}"), groups))
}
