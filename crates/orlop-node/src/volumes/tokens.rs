//! Tokens of service accounts for pods: requested, kept, and renewed in time.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

use k8s_openapi::{
    api::{
        authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec},
        core::v1::{Pod, ServiceAccount, ServiceAccountTokenProjection},
    },
    jiff::{Timestamp, ToSpan},
};
use orlop_client::{Api, Client, api::PostParams};

/// Life of a token that names none, in seconds.
const DEFAULT_SECONDS: i64 = 3600;
/// Age at which a token is renewed however long it lives, in seconds.
const AGE_MAX: i64 = 24 * 3600;

/// Pod uid, audience and life of a token.
type Key = (String, String, i64);

/// Tokens in use.
#[derive(Debug, Default)]
pub(crate) struct Tokens(Mutex<HashMap<Key, Token>>);

#[derive(Clone, Debug)]
struct Token {
    text: String,
    renew_at: Timestamp,
}

impl Tokens {
    /// Returns a token of a pod's service account: the one in use until 80 % of its life.
    pub(crate) async fn get(
        &self,
        client: &Client,
        pod: &Pod,
        source: &ServiceAccountTokenProjection,
    ) -> Result<String, String> {
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        let audience = source.audience.clone().unwrap_or_default();
        let seconds = source.expiration_seconds.unwrap_or(DEFAULT_SECONDS);
        let key = (uid.clone(), audience.clone(), seconds);
        let now = Timestamp::now();
        if let Some(token) = self.lock().get(&key).filter(|token| now < token.renew_at) {
            return Ok(token.text.clone());
        }
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), namespace);
        let account = pod.spec.as_ref().and_then(|spec| spec.service_account_name.as_deref());
        let account = account.filter(|name| !name.is_empty()).unwrap_or("default");
        let request = TokenRequest {
            spec: Some(TokenRequestSpec {
                audiences: Some(Some(audience).filter(|audience| !audience.is_empty()).into_iter().collect()),
                expiration_seconds: Some(seconds),
                bound_object_ref: Some(BoundObjectReference {
                    api_version: Some("v1".into()),
                    kind: Some("Pod".into()),
                    name: pod.metadata.name.clone(),
                    uid: Some(uid),
                }),
                ..TokenRequestSpec::default()
            }),
            ..TokenRequest::default()
        };
        let answer = accounts.create_subresource("token", account, &PostParams::default(), &request).await;
        let answer: TokenRequest = answer.map_err(|error| format!("failed to fetch token: {error}"))?;
        let status = answer.status;
        let status = status.ok_or("failed to fetch token: no token")?;
        let life = status.expiration_timestamp.map_or(0, |at| at.0.duration_since(now).as_secs());
        let age = (life * 4 / 5).min(AGE_MAX);
        let renew_at = now.checked_add(age.seconds()).unwrap_or(now);
        let text = status.token.unwrap_or_default();
        self.lock().insert(key, Token { text: text.clone(), renew_at });
        Ok(text)
    }

    /// Forgets the tokens of a pod.
    pub(crate) fn forget(&self, uid: &str) {
        self.lock().retain(|(pod, ..), _| pod != uid);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<Key, Token>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
