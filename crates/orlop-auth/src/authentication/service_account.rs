//! Tokens of service accounts: bound ones of TokenRequests, and the ones in secrets.
//!
//! A bound token is good as long as its service account and the object it is bound to exist with the same uid: a token
//! of a deleted pod, secret or node is refused before it expires. A token in a secret is good as long as the secret
//! holds it.

use std::sync::Arc;

use async_trait::async_trait;
use base64::{Engine, engine::general_purpose::STANDARD};
use orlop_api::{object_meta, time::Time};
use serde_json::{Map, Value};
use tokio::sync::mpsc;

use super::client_certificate::CREDENTIAL_ID;
use crate::{
    User,
    authenticator::{Authenticated, AuthenticationError, Outcome, TokenAuthenticator, intersection},
    issuer::Issuer,
    jose::{Token, seconds},
    lookup::{ObjectLookup, Observation, Resource},
    time::{Clock, system_clock},
};

/// Issuer of tokens in secrets.
const LEGACY_ISSUER: &str = "kubernetes/serviceaccount";
/// Seconds by which clocks may differ, and for which tokens outlive the deletion of their objects, as in Kubernetes.
const LEEWAY_SECONDS: i64 = 60;
/// Label of a secret whose token has not been used for long.
const INVALID_SINCE: &str = "kubernetes.io/legacy-token-invalid-since";
/// Uses of tokens in secrets that wait to be recorded.
const USES_MAX: usize = 64;

/// Claims of a token, and the audiences it shares with those that are accepted.
struct Claims {
    claims: Map<String, Value>,
    audiences: Vec<String>,
}

type Check<T> = Result<T, AuthenticationError>;

fn invalid(why: impl Into<String>) -> AuthenticationError {
    AuthenticationError::invalid(why)
}

/// Issuer, objects and audiences, which both sorts of tokens need.
#[derive(Debug)]
struct Verifier {
    issuer: Arc<Issuer>,
    objects: Arc<dyn ObjectLookup>,
    audiences: Vec<String>,
    clock: Clock,
}

impl Verifier {
    /// Returns the claims of a token and the audiences it shares with those that are accepted. `None` if it is not by
    /// one of the issuers.
    fn claims(&self, token: &str, issuers: &[String], accepted: &[String]) -> Check<Option<Claims>> {
        let Some(token) = Token::parse(token) else { return Ok(None) };
        if !issuers.iter().any(|issuer| issuer == token.issuer()) {
            return Ok(None);
        }
        self.issuer.verify(&token).map_err(invalid)?;
        let mut audiences = token.audiences();
        if audiences.is_empty() {
            audiences.clone_from(&self.audiences);
        }
        let accepted = if accepted.is_empty() { &self.audiences } else { accepted };
        let shared = intersection(&audiences, accepted);
        if shared.is_empty() && !self.audiences.is_empty() {
            return Err(invalid(format!(
                "token audiences {audiences:?} is invalid for the target audiences {accepted:?}"
            )));
        }
        Ok(Some(Claims { claims: token.into_claims(), audiences: shared }))
    }

    async fn get(
        &self,
        resource: Resource,
        namespace: &str,
        name: &str,
        depends_on: &mut Vec<Observation>,
    ) -> Check<Option<Value>> {
        depends_on.push(self.objects.observe(resource, namespace, name));
        self.objects.get(resource, namespace, name).await.map_err(AuthenticationError::Unavailable)
    }
}

/// Authenticates tokens that TokenRequests issued.
#[derive(Debug)]
pub struct ServiceAccountTokens(Verifier);

impl ServiceAccountTokens {
    /// Returns an authenticator of an issuer's tokens for the API server's audiences.
    pub fn new(issuer: Arc<Issuer>, objects: Arc<dyn ObjectLookup>, audiences: Vec<String>) -> Self {
        Self(Verifier { issuer, objects, audiences, clock: system_clock })
    }

    /// Sets the clock.
    #[must_use]
    pub fn with_clock(mut self, clock: Clock) -> Self {
        self.0.clock = clock;
        self
    }

    /// Checks that an object named in a token exists with the uid in the token.
    async fn check(
        &self,
        resource: Resource,
        namespace: &str,
        reference: &Reference<'_>,
        now: i64,
        depends_on: &mut Vec<Observation>,
    ) -> Check<()> {
        let Reference { name, uid } = reference;
        let object = self.0.get(resource, namespace, name, depends_on).await?;
        let is_account = resource == Resource::ServiceAccounts;
        let Some(object) = object else {
            return Err(match is_account {
                true => invalid(format!("serviceaccounts {name:?} not found")),
                false => invalid("service account token has been invalidated"),
            });
        };
        let meta = object_meta::of(&object);
        let found = object_meta::text(meta, "uid");
        if found != *uid {
            let (kind, claim) = match resource {
                Resource::ServiceAccounts => ("service account", "claim"),
                Resource::Secrets => ("secret", "service account secret ref claim"),
                Resource::Pods => ("pod", "service account pod ref claim"),
                Resource::Nodes => ("node", "service account node ref claim"),
            };
            return Err(invalid(format!("{kind} UID ({found}) does not match {claim} ({uid})")));
        }
        let deleted = Time::parse(object_meta::text(meta, "deletionTimestamp"));
        if deleted.is_some_and(|deleted| deleted.unix_seconds < now - LEEWAY_SECONDS) {
            return Err(match is_account {
                true => invalid(format!("service account {namespace}/{name} has been deleted")),
                false => invalid("service account token has been invalidated"),
            });
        }
        Ok(())
    }
}

/// A name and uid in a token.
struct Reference<'a> {
    name: &'a str,
    uid: &'a str,
}

impl<'a> Reference<'a> {
    fn of(private: &'a Value, claim: &str) -> Option<Self> {
        let reference = private.get(claim)?.as_object()?;
        let text = |field: &str| reference.get(field).and_then(Value::as_str).unwrap_or_default();
        Some(Self { name: text("name"), uid: text("uid") })
    }
}

#[async_trait]
impl TokenAuthenticator for ServiceAccountTokens {
    async fn authenticate(&self, token: &str, audiences: &[String]) -> Outcome {
        let Some(Claims { claims, audiences }) = self.0.claims(token, self.0.issuer.names(), audiences)?
        else {
            return Ok(None);
        };
        let now = (self.0.clock)();
        let expires = check_times(&claims, now)?;
        let private = claims.get("kubernetes.io").cloned().unwrap_or_default();
        let namespace = private["namespace"].as_str().unwrap_or_default();
        let account = Reference::of(&private, "serviceaccount").unwrap_or(Reference { name: "", uid: "" });
        let mut found = Authenticated { audiences, expires, ..Authenticated::default() };
        self.check(Resource::ServiceAccounts, namespace, &account, now, &mut found.depends_on).await?;
        let (secret, pod, node) = (
            Reference::of(&private, "secret"),
            Reference::of(&private, "pod"),
            Reference::of(&private, "node"),
        );
        if let Some(secret) = &secret {
            self.check(Resource::Secrets, namespace, secret, now, &mut found.depends_on).await?;
        }
        if let Some(pod) = &pod {
            self.check(Resource::Pods, namespace, pod, now, &mut found.depends_on).await?;
        }
        if let (Some(node), None) = (&node, &pod) {
            // The node of a pod's token is information only.
            self.check(Resource::Nodes, "", node, now, &mut found.depends_on).await?;
        }
        let mut user = User::service_account(namespace, account.name);
        account.uid.clone_into(&mut user.uid);
        let mut set = |key: &str, value: &str| {
            if !value.is_empty() {
                user.extra.insert(format!("authentication.kubernetes.io/{key}"), vec![value.to_owned()]);
            }
        };
        if let Some(pod) = &pod {
            set("pod-name", pod.name);
            set("pod-uid", pod.uid);
        }
        if let Some(node) = &node {
            set("node-name", node.name);
            set("node-uid", node.uid);
        }
        if let Some(id) = claims.get("jti").and_then(Value::as_str).filter(|id| !id.is_empty()) {
            user.extra.insert(CREDENTIAL_ID.to_owned(), vec![format!("JTI={id}")]);
        }
        let warn_after = private.as_object().map(|private| seconds(private, "warnafter"));
        if let Some(Ok(Some(warn_after))) = warn_after
            && warn_after != 0
            && now > warn_after
        {
            let stale =
                format!("subject: {}, seconds after warning threshold: {}", user.name, now - warn_after);
            found.annotations.push(("authentication.k8s.io/stale-token", stale));
        }
        found.user = Arc::new(user);
        Ok(Some(found))
    }
}

/// Checks the times in a token. Returns when it expires, if it does.
fn check_times(claims: &Map<String, Value>, now: i64) -> Check<Option<i64>> {
    let time = |name: &str| seconds(claims, name).map_err(invalid).map(|time| time.filter(|time| *time != 0));
    let expires = time("exp")?.map(|expires| expires.saturating_add(LEEWAY_SECONDS));
    if time("nbf")?.is_some_and(|from| now + LEEWAY_SECONDS < from) {
        return Err(invalid("service account token is not valid yet"));
    }
    if expires.is_some_and(|expires| now > expires) {
        return Err(invalid("service account token has expired"));
    }
    if time("iat")?.is_some_and(|issued| now + LEEWAY_SECONDS < issued) {
        return Err(invalid("service account token is issued in the future"));
    }
    Ok(expires)
}

/// Records that tokens in secrets are used, without delaying requests. Uses that come too fast are left out: the next
/// one will do.
#[derive(Clone, Debug)]
pub struct UseTracker(mpsc::Sender<(String, String)>);

impl UseTracker {
    /// Returns a tracker and the namespaces and names of secrets whose tokens are used.
    pub fn channel() -> (Self, mpsc::Receiver<(String, String)>) {
        let (sender, receiver) = mpsc::channel(USES_MAX);
        (Self(sender), receiver)
    }
}

/// Authenticates tokens in secrets of type `kubernetes.io/service-account-token`.
#[derive(Debug)]
pub struct LegacyServiceAccountTokens {
    verifier: Verifier,
    tracker: Option<UseTracker>,
}

impl LegacyServiceAccountTokens {
    /// Returns an authenticator of an issuer's tokens for the API server's audiences.
    pub fn new(
        issuer: Arc<Issuer>,
        objects: Arc<dyn ObjectLookup>,
        audiences: Vec<String>,
        tracker: Option<UseTracker>,
    ) -> Self {
        Self { verifier: Verifier { issuer, objects, audiences, clock: system_clock }, tracker }
    }
}

#[async_trait]
impl TokenAuthenticator for LegacyServiceAccountTokens {
    async fn authenticate(&self, token: &str, audiences: &[String]) -> Outcome {
        let issuers = [LEGACY_ISSUER.to_owned()];
        let Some(Claims { claims, audiences }) = self.verifier.claims(token, &issuers, audiences)? else {
            return Ok(None);
        };
        let text = |claim: &str| claims.get(claim).and_then(Value::as_str).unwrap_or_default();
        let private = |claim: &str| text(&format!("kubernetes.io/serviceaccount/{claim}")).to_owned();
        let (namespace, secret) = (private("namespace"), private("secret.name"));
        let (name, uid) = (private("service-account.name"), private("service-account.uid"));
        for (value, claim) in [
            (text("sub"), "sub"),
            (namespace.as_str(), "namespace"),
            (secret.as_str(), "secretName"),
            (name.as_str(), "serviceAccountName"),
            (uid.as_str(), "serviceAccountUID"),
        ] {
            if value.is_empty() {
                return Err(invalid(format!("{claim} claim is missing")));
            }
        }
        if text("sub") != format!("system:serviceaccount:{namespace}:{name}") {
            return Err(invalid("sub claim is invalid"));
        }
        let mut found = Authenticated { audiences, ..Authenticated::default() };
        let object = self.verifier.get(Resource::Secrets, &namespace, &secret, &mut found.depends_on).await?;
        let is_deleted =
            |object: &Value| !object_meta::text(object_meta::of(object), "deletionTimestamp").is_empty();
        let object = object.filter(|object| !is_deleted(object));
        let object = object.ok_or_else(|| invalid("Token has been invalidated"))?;
        let known = object.pointer("/data/token").and_then(Value::as_str).unwrap_or_default();
        let known = STANDARD.decode(known).unwrap_or_default();
        if aws_lc_rs::constant_time::verify_slices_are_equal(&known, token.as_bytes()).is_err() {
            return Err(invalid("Token does not match server's copy"));
        }
        let account =
            self.verifier.get(Resource::ServiceAccounts, &namespace, &name, &mut found.depends_on).await?;
        let account = account.ok_or_else(|| invalid(format!("serviceaccounts {name:?} not found")))?;
        if is_deleted(&account) {
            return Err(invalid(format!("ServiceAccount {namespace}/{name} has been deleted")));
        }
        let current = object_meta::text(object_meta::of(&account), "uid");
        if current != uid {
            return Err(invalid(format!("ServiceAccount UID ({current}) does not match claim ({uid})")));
        }
        if let Some(tracker) = &self.tracker {
            // A full channel is no reason to refuse or to wait.
            let _ = tracker.0.try_send((namespace.clone(), secret.clone()));
        }
        let since = object.pointer("/metadata/labels").and_then(|labels| labels.get(INVALID_SINCE));
        if since.and_then(Value::as_str).is_some_and(|since| !since.is_empty()) {
            return Err(invalid(format!(
                "the token in secret {namespace}/{secret} for service account {namespace}/{name} has been marked \
                 invalid. Use tokens from the TokenRequest API or manually created secret-based tokens, or remove \
                 the '{INVALID_SINCE}' label from the secret to temporarily allow use of this token"
            )));
        }
        let references = account.get("secrets").and_then(Value::as_array).into_iter().flatten();
        if references.into_iter().any(|reference| reference["name"] == *secret) {
            found.warnings.push(
                "Use tokens from the TokenRequest API or manually created secret-based tokens instead of \
                 auto-generated secret-based tokens."
                    .to_owned(),
            );
            found.annotations.push(("authentication.k8s.io/legacy-token-autogenerated-secret", secret));
        } else {
            found.annotations.push(("authentication.k8s.io/legacy-token-manual-secret", secret));
        }
        let mut user = User::service_account(&namespace, &name);
        user.uid = uid;
        found.user = Arc::new(user);
        Ok(Some(found))
    }
}
