//! Distributed claims (OpenID Connect Core 1.0, section 5.6.2): a token names an endpoint where its groups are to be
//! had, in a token of their own.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use serde_json::{Map, Value};

use super::{config::IssuerConfiguration, provider::Provider, verification::Verification};
use crate::jose::Token;

/// Issuers of distributed claims that are remembered. There is one, or very few.
const ISSUERS_MAX: usize = 16;

/// Fetches a claim that a token does not have itself.
#[derive(Debug)]
pub(super) struct ClaimResolver {
    claim: String,
    issuer: IssuerConfiguration,
    providers: Mutex<HashMap<String, Arc<Provider>>>,
}

/// An endpoint of claims.
struct Endpoint<'a> {
    url: &'a str,
    access_token: &'a str,
}

impl ClaimResolver {
    /// Returns a resolver of one claim of an issuer's tokens.
    pub(super) fn new(claim: String, issuer: &IssuerConfiguration) -> Self {
        Self { claim, issuer: issuer.clone(), providers: Mutex::default() }
    }

    /// Adds the claim to those of a verified token, if they say where it is.
    pub(super) async fn expand(
        &self,
        claims: &mut Map<String, Value>,
        provider: &Provider,
        verification: &Verification,
    ) -> Result<(), String> {
        let Some(endpoint) = self.endpoint(claims)? else { return Ok(()) };
        let claim = &self.claim;
        let text = provider
            .fetch_claims(endpoint.url, endpoint.access_token)
            .await
            .map_err(|why| format!("while getting distributed claim {claim:?}: {why}"))?;
        let token = Token::parse(text.trim()).filter(|token| !token.issuer().is_empty());
        let token = token.ok_or_else(|| {
            format!("getting untrusted issuer from endpoint {} failed for claim {claim:?}", endpoint.url)
        })?;
        let untrusted = self.provider(token.issuer());
        if !untrusted.is_initialized() {
            let failed = |why| format!("verifying untrusted issuer {} failed: {why}", token.issuer());
            untrusted.discover().await.map_err(failed)?;
        }
        let failed = |why| format!("verify distributed claim token: {why}");
        verification.check(&token).map_err(failed)?;
        untrusted.verify(&token).await.map_err(failed)?;
        let Some(value) = token.into_claims().remove(claim) else {
            return Err(format!(
                "jwt returned by distributed claim endpoint {:?} did not contain claim: {claim}",
                endpoint.url
            ));
        };
        claims.insert(claim.clone(), value);
        Ok(())
    }

    /// Returns the endpoint of the claim, unless the token has the claim itself or nobody does.
    fn endpoint<'a>(&self, claims: &'a Map<String, Value>) -> Result<Option<Endpoint<'a>>, String> {
        if claims.contains_key(&self.claim) {
            return Ok(None);
        }
        let Some(names) = claims.get("_claim_names") else { return Ok(None) };
        let names = names.as_object().filter(|names| names.values().all(Value::is_string));
        let names = names.ok_or("oidc: error parsing distributed claim names")?;
        let sources = claims.get("_claim_sources").ok_or("oidc: no claim sources")?;
        let sources = sources.as_object().ok_or("oidc: could not parse claim sources")?;
        let Some(source) = names.get(&self.claim).and_then(Value::as_str) else { return Ok(None) };
        let Some(found) = sources.get(source) else {
            return Err(format!(
                "id token _claim_names contained a source {source} missing in _claims_sources"
            ));
        };
        let text = |field: &str| found.get(field).and_then(Value::as_str).unwrap_or_default();
        let endpoint = Endpoint { url: text("endpoint"), access_token: text("access_token") };
        // Without an endpoint it may be an aggregated claim, which Kubernetes does not read.
        Ok(Some(endpoint).filter(|endpoint| !endpoint.url.is_empty()))
    }

    /// Returns the keys of an issuer of claims.
    fn provider(&self, issuer: &str) -> Arc<Provider> {
        let mut providers = self.providers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = providers.get(issuer) {
            return known.clone();
        }
        if providers.len() >= ISSUERS_MAX {
            providers.clear();
        }
        let configuration = IssuerConfiguration {
            url: issuer.to_owned(),
            discovery_url: String::new(),
            ..self.issuer.clone()
        };
        let provider = Arc::new(Provider::new(&configuration));
        providers.insert(issuer.to_owned(), provider.clone());
        provider
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use serde_json::json;

    use super::*;

    #[test]
    fn endpoint_is_where_the_token_says() {
        let resolver = ClaimResolver::new("groups".to_owned(), &IssuerConfiguration::default());
        let url = |claims: Value| {
            let claims = claims.as_object().unwrap().clone();
            resolver.endpoint(&claims).map(|found| found.map(|found| found.url.to_owned()))
        };
        let names = json!({"groups": "src"});
        let sources = json!({"src": {"endpoint": "https://a", "access_token": "t"}});
        assert_eq!(url(json!({})), Ok(None));
        assert_eq!(
            url(json!({"_claim_names": names, "_claim_sources": sources})),
            Ok(Some("https://a".to_owned()))
        );
        let own = json!({"groups": [], "_claim_names": names, "_claim_sources": sources});
        assert_eq!(url(own), Ok(None), "the token's own claim counts");
        assert_eq!(url(json!({"_claim_names": {"other": "src"}, "_claim_sources": sources})), Ok(None));
        let aggregated = json!({"src": {"JWT": "a.b.c"}});
        assert_eq!(url(json!({"_claim_names": names, "_claim_sources": aggregated})), Ok(None));
        for (malformed, why) in [
            (json!({"_claim_names": names}), "no claim sources"),
            (json!({"_claim_names": 5, "_claim_sources": sources}), "claim names"),
            (json!({"_claim_names": {"groups": 5}, "_claim_sources": sources}), "claim names"),
            (json!({"_claim_names": names, "_claim_sources": 5}), "could not parse claim sources"),
            (json!({"_claim_names": names, "_claim_sources": {}}), "a source src missing"),
        ] {
            let error = url(malformed.clone()).unwrap_err();
            assert!(error.contains(why), "{malformed}: {error}");
        }
    }
}
