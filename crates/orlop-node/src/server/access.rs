//! Authentication and authorization of the node's API, by the cluster.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use http::{Method, Request, Response, StatusCode, header};
use hyper::body::Incoming;
use k8s_openapi::api::{
    authentication::v1::{TokenReview, TokenReviewSpec},
    authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec},
};
use orlop_client::{Api, Client, api::PostParams};
use orlop_net::ClientCertificate;
use rustls::pki_types::UnixTime;
use tokio::time::Instant;
use x509_parser::x509::AttributeTypeAndValue;

use super::{Body, text};

/// Lives of cached answers.
const TOKEN_LIFE: Duration = Duration::from_secs(120);
const ALLOWED_LIFE: Duration = Duration::from_secs(300);
const DENIED_LIFE: Duration = Duration::from_secs(30);
/// Answers that are cached.
const CACHED_MAX: usize = 1000;

/// A user of the node's API.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct User {
    name: String,
    groups: Vec<String>,
    uid: Option<String>,
    extra: BTreeMap<String, Vec<String>>,
}

/// Returns the user of a client certificate; `None` if it names none or cannot be read, as for the API server.
pub(super) fn certificate_user(certificate: &ClientCertificate) -> Option<User> {
    let chain = match certificate {
        ClientCertificate::Absent => return None,
        ClientCertificate::Verified(chain) => chain,
        ClientCertificate::Presented(presented) => {
            presented.verifier.verify(&presented.chain, UnixTime::now()).ok()?;
            &presented.chain
        }
    };
    let (_, parsed) = x509_parser::parse_x509_certificate(chain.first()?).ok()?;
    let subject = parsed.subject();
    // Of several common names the last counts, as for the API server: a signer has looked at no other.
    let name = texts(subject.iter_common_name())?.pop().filter(|name| !name.is_empty())?;
    let mut groups = texts(subject.iter_organization())?;
    groups.push("system:authenticated".to_owned());
    Some(User { name, groups, uid: None, extra: BTreeMap::new() })
}

fn texts<'a>(values: impl Iterator<Item = &'a AttributeTypeAndValue<'a>>) -> Option<Vec<String>> {
    values.map(|value| value.as_str().ok().map(str::to_owned)).collect()
}

/// The verb and subresource of a request on this node.
type Right = (User, &'static str, &'static str);

/// Asks the cluster who may do what, and remembers its answers for a while.
#[derive(Debug)]
pub(super) struct Access {
    client: crate::context::NodeClient,
    node: String,
    tokens: Mutex<HashMap<String, (User, Instant)>>,
    decisions: Mutex<HashMap<Right, (bool, Instant)>>,
}

impl Access {
    pub(super) fn new(client: Client, node: String) -> Self {
        let client = crate::context::NodeClient(client);
        Self { client, node, tokens: Mutex::default(), decisions: Mutex::default() }
    }

    /// Returns the response for a request that is not allowed.
    pub(super) async fn check(
        &self,
        certificate: Option<&User>,
        request: &Request<Incoming>,
    ) -> Result<(), Response<Body>> {
        let user = match certificate {
            Some(user) => user.clone(),
            None => self
                .token_user(request)
                .await
                .ok_or_else(|| text(StatusCode::UNAUTHORIZED, "Unauthorized"))?,
        };
        let verb = verb(request.method());
        for subresource in subresources(request.uri().path()) {
            match self.is_allowed((user.clone(), verb, subresource)).await {
                Ok(true) => return Ok(()),
                Ok(false) => {}
                Err(error) => {
                    let message = format!(
                        "Authorization error (user={}, verb={verb}, resource=nodes, subresource(s)={:?})",
                        user.name,
                        subresources(request.uri().path())
                    );
                    tracing::warn!(%error, "cannot authorize a request to the node");
                    return Err(text(StatusCode::INTERNAL_SERVER_ERROR, message));
                }
            }
        }
        let asked = subresources(request.uri().path()).join(" ");
        Err(text(
            StatusCode::FORBIDDEN,
            format!(
                "Forbidden (user={}, verb={verb}, resource=nodes, subresource(s)=[{asked}])\n",
                user.name
            ),
        ))
    }

    async fn token_user(&self, request: &Request<Incoming>) -> Option<User> {
        let value = request.headers().get(header::AUTHORIZATION)?.to_str().ok()?;
        let token = value.strip_prefix("Bearer ")?.trim().to_owned();
        let now = Instant::now();
        if let Some((user, until)) = lock(&self.tokens).get(&token)
            && *until > now
        {
            return Some(user.clone());
        }
        let reviews: Api<TokenReview> = Api::all(self.client.0.clone());
        let spec = TokenReviewSpec { token: token.clone(), ..TokenReviewSpec::default() };
        let review = TokenReview { spec, ..TokenReview::default() };
        let status = reviews.create(&PostParams::default(), &review).await.ok()?.status?;
        let info = status.user.filter(|_| status.authenticated == Some(true))?;
        let user = User {
            name: info.username.unwrap_or_default(),
            groups: info.groups.unwrap_or_default(),
            uid: info.uid,
            extra: info.extra.unwrap_or_default(),
        };
        let mut tokens = lock(&self.tokens);
        if tokens.len() >= CACHED_MAX {
            tokens.clear();
        }
        tokens.insert(token, (user.clone(), now + TOKEN_LIFE));
        Some(user)
    }

    async fn is_allowed(&self, right: Right) -> orlop_client::Result<bool> {
        let now = Instant::now();
        if let Some((allowed, until)) = lock(&self.decisions).get(&right)
            && *until > now
        {
            return Ok(*allowed);
        }
        let (user, verb, subresource) = right.clone();
        let reviews: Api<SubjectAccessReview> = Api::all(self.client.0.clone());
        let review = SubjectAccessReview {
            spec: SubjectAccessReviewSpec {
                user: Some(user.name),
                groups: Some(user.groups),
                uid: user.uid,
                extra: Some(user.extra).filter(|extra| !extra.is_empty()),
                resource_attributes: Some(ResourceAttributes {
                    verb: Some(verb.to_owned()),
                    resource: Some("nodes".to_owned()),
                    subresource: Some(subresource.to_owned()),
                    name: Some(self.node.clone()),
                    version: Some("v1".to_owned()),
                    ..ResourceAttributes::default()
                }),
                ..SubjectAccessReviewSpec::default()
            },
            ..SubjectAccessReview::default()
        };
        let status = reviews.create(&PostParams::default(), &review).await?.status;
        let allowed = status.is_some_and(|status| status.allowed);
        let mut decisions = lock(&self.decisions);
        if decisions.len() >= CACHED_MAX {
            decisions.clear();
        }
        decisions.insert(right, (allowed, now + if allowed { ALLOWED_LIFE } else { DENIED_LIFE }));
        Ok(allowed)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn verb(method: &Method) -> &'static str {
    match *method {
        Method::POST => "create",
        Method::PUT => "update",
        Method::PATCH => "patch",
        Method::DELETE => "delete",
        _ => "get",
    }
}

/// Returns the subresources of nodes, any of which allows a path.
fn subresources(path: &str) -> &'static [&'static str] {
    match path.split('/').nth(1).unwrap_or_default() {
        "stats" => &["stats"],
        "metrics" => &["metrics"],
        "logs" => &["log"],
        "checkpoint" => &["checkpoint"],
        "pods" | "runningpods" => &["pods", "proxy"],
        "healthz" => &["healthz", "proxy"],
        "configz" => &["configz", "proxy"],
        "statusz" => &["statusz"],
        _ => &["proxy"],
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DistinguishedName, DnType, DnValue, KeyPair, string::BmpString};

    use super::*;

    /// Returns the user of a certificate with these attributes of its subject, in order. An organizational unit stands for
    /// another common name.
    fn user(attributes: &[(DnType, DnValue)]) -> Option<(String, Vec<String>)> {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        for (kind, value) in attributes {
            params.distinguished_name.push(kind.clone(), value.clone());
        }
        let mut der = params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().to_vec();
        for start in 0..der.len() - 3 {
            if der[start..start + 3] == [0x55, 0x04, 0x0b] {
                der[start + 2] = 0x03;
            }
        }
        let user = certificate_user(&ClientCertificate::Verified(vec![der.into()]))?;
        Some((user.name, user.groups))
    }

    fn text(text: &str) -> DnValue {
        DnValue::Utf8String(text.to_owned())
    }

    #[test]
    fn certificates_name_the_user_that_their_signers_have_seen() {
        let node = (DnType::OrganizationalUnitName, text("system:node:a"));
        let nodes = (DnType::OrganizationName, text("system:nodes"));
        let other = (DnType::CommonName, text("kube-apiserver-kubelet-client"));
        let groups = ["system:nodes".to_owned(), "system:authenticated".to_owned()];
        assert_eq!(user(&[other, node, nodes]), Some(("system:node:a".to_owned(), groups.to_vec())));
        let masters = DnValue::BmpString(BmpString::try_from("system:masters").unwrap());
        let ann = (DnType::CommonName, text("ann"));
        assert_eq!(user(&[ann, (DnType::OrganizationName, masters)]), None);
        assert_eq!(user(&[(DnType::OrganizationName, text("dev"))]), None);
        assert_eq!(user(&[(DnType::CommonName, text(""))]), None);
    }
}
