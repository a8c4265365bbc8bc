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

/// The client of a connection. Its certificate is verified for each request: it may expire and CAs may change while the
/// connection is open.
#[derive(Debug)]
pub(super) struct Peer {
    certificate: ClientCertificate,
    /// The user that the certificate names, true or not.
    named: Option<User>,
}

impl Peer {
    /// Returns the client that presented a certificate.
    pub(super) fn of(certificate: &ClientCertificate) -> Self {
        let chain = match certificate {
            ClientCertificate::Absent => &[][..],
            ClientCertificate::Verified(chain) => chain,
            ClientCertificate::Presented(presented) => &presented.chain,
        };
        Self { certificate: certificate.clone(), named: chain.first().and_then(|first| named(first)) }
    }

    /// Returns the user, if the CAs of clients vouch for the certificate now.
    fn user(&self) -> Option<&User> {
        let named = self.named.as_ref()?;
        match &self.certificate {
            ClientCertificate::Absent => None,
            ClientCertificate::Verified(_) => Some(named),
            ClientCertificate::Presented(presented) => {
                presented.verifier.verify(&presented.chain, UnixTime::now()).ok().map(|()| named)
            }
        }
    }
}

/// Returns the user that a certificate names. As for the API server, the last of several common names counts, and a
/// subject that is not text is nobody's.
fn named(certificate: &[u8]) -> Option<User> {
    let (_, parsed) = x509_parser::parse_x509_certificate(certificate).ok()?;
    let text = |attribute: &AttributeTypeAndValue<'_>| attribute.as_str().ok().map(str::to_owned);
    let names: Vec<String> = parsed.subject().iter_common_name().map(text).collect::<Option<_>>()?;
    let name = names.into_iter().next_back().filter(|name| !name.is_empty())?;
    let mut groups: Vec<String> = parsed.subject().iter_organization().map(text).collect::<Option<_>>()?;
    groups.push("system:authenticated".to_owned());
    Some(User { name, groups, uid: None, extra: BTreeMap::new() })
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
        peer: Option<&Peer>,
        request: &Request<Incoming>,
    ) -> Result<(), Response<Body>> {
        let user = match peer.and_then(Peer::user) {
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
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use std::sync::Arc;

    use orlop_net::{ClientVerifier, PemSource, PresentedCertificate};
    use rcgen::{
        BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, DnValue,
        ExtendedKeyUsagePurpose, IsCa, KeyPair,
    };

    use super::*;

    type Ca = CertifiedIssuer<'static, KeyPair>;

    fn ca() -> Ca {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
    }

    fn sources(ca: &Ca) -> Vec<PemSource> {
        vec![PemSource::Inline(ca.pem())]
    }

    fn presented(ca: &Ca, verifier: &Arc<ClientVerifier>, names: Vec<(DnType, DnValue)>) -> Peer {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        names.into_iter().for_each(|(kind, value)| params.distinguished_name.push(kind, value));
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let certificate = params.signed_by(&KeyPair::generate().unwrap(), ca).unwrap();
        let chain = vec![certificate.der().clone()];
        let presented = PresentedCertificate { chain, verifier: verifier.clone() };
        Peer::of(&ClientCertificate::Presented(presented))
    }

    fn text(text: &str) -> DnValue {
        DnValue::Utf8String(text.to_owned())
    }

    #[test]
    fn certificate_of_an_open_connection_is_not_accepted_once_its_ca_is_retired() {
        let (old, new) = (ca(), ca());
        let verifier = Arc::new(ClientVerifier::new(sources(&old)).unwrap());
        let peer = presented(&old, &verifier, vec![(DnType::CommonName, text("ann"))]);
        assert_eq!(peer.user().unwrap().name, "ann");
        verifier.replace(sources(&new)).unwrap();
        assert_eq!(peer.user(), None);
    }

    #[test]
    fn certificate_names_the_user_that_the_api_server_sees() {
        let ca = ca();
        let verifier = Arc::new(ClientVerifier::new(sources(&ca)).unwrap());
        // The name of a type by its number is another attribute of the same type.
        let other = |last: u64| DnType::CustomDnType(vec![2, 5, 4, last]);
        let names = vec![
            (DnType::CommonName, text("kubernetes-admin")),
            (DnType::OrganizationName, text("system:nodes")),
            (other(3), text("system:node:a")),
        ];
        let user = presented(&ca, &verifier, names).user().unwrap().clone();
        assert_eq!(user.name, "system:node:a");
        assert_eq!(user.groups, ["system:nodes", "system:authenticated"]);
        let hidden = DnValue::TeletexString(rcgen::string::TeletexString::try_from("admins").unwrap());
        let unreadable = vec![(DnType::CommonName, text("ann")), (DnType::OrganizationName, hidden)];
        assert_eq!(presented(&ca, &verifier, unreadable).user(), None);
        assert_eq!(presented(&ca, &verifier, vec![(DnType::OrganizationName, text("dev"))]).user(), None);
    }
}
