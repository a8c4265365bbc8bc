//! Issuers of JSON Web Tokens: discovery, keys, rotation, and issuers that fail or lie.

use std::{
    fs,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use orlop_auth::{
    TokenAuthenticator,
    authentication::oidc::{AuthenticationConfiguration, ConfigurationFile, JwtIssuers},
    jose::{Algorithm, KeySet, PublicKey, SigningKey},
    time::system_clock,
};
use serde_json::{Value, json};

use crate::server::{Answer, Server};

/// An issuer whose keys can be replaced.
struct Issuer {
    server: Server,
    keys: Arc<Mutex<Vec<PublicKey>>>,
    fetched: Arc<AtomicUsize>,
}

impl Issuer {
    async fn start(key: &SigningKey) -> Self {
        let keys = Arc::new(Mutex::new(vec![key.public_key().clone()]));
        let fetched = Arc::new(AtomicUsize::new(0));
        let server = Server::start(|_| Answer::Hang).await;
        let (url, shared, count) = (server.url(), keys.clone(), fetched.clone());
        server.answer(move |asked| match asked.path() {
            "/.well-known/openid-configuration" => {
                Answer::Json(200, json!({"issuer": url, "jwks_uri": format!("{url}/keys")}))
            }
            "/keys" => {
                count.fetch_add(1, Ordering::SeqCst);
                Answer::Json(200, KeySet::new(shared.lock().unwrap().clone()).to_json())
            }
            _ => Answer::Text(404, "", String::new()),
        });
        Self { server, keys, fetched }
    }

    fn configuration(&self) -> AuthenticationConfiguration {
        AuthenticationConfiguration::decode(&self.text("sub")).unwrap()
    }

    fn text(&self, username: &str) -> String {
        let ca = self.server.ca.certificate().replace('\n', "\n      ");
        format!(
            "apiVersion: apiserver.config.k8s.io/v1
kind: AuthenticationConfiguration
jwt:
- issuer:
    url: {}
    audiences: [api]
    certificateAuthority: |
      {ca}
  claimMappings:
    username: {{claim: {username}, prefix: 'oidc:'}}
",
            self.server.url()
        )
    }

    fn claims(&self) -> Value {
        let now = system_clock();
        json!({"iss": self.server.url(), "aud": "api", "sub": "ann", "email": "ann@example.org", "exp": now + 60})
    }
}

fn key() -> SigningKey {
    SigningKey::from_pem(rcgen::KeyPair::generate().unwrap().serialize_pem().as_bytes()).unwrap()
}

fn start(configuration: &AuthenticationConfiguration) -> JwtIssuers {
    JwtIssuers::start(configuration, &[], Algorithm::ALL, None).unwrap()
}

async fn ask(authenticator: &impl TokenAuthenticator, token: &str) -> Result<Option<String>, String> {
    let outcome = authenticator.authenticate(token, &[]).await;
    outcome.map(|found| found.map(|found| found.user.name.clone())).map_err(|error| error.to_string())
}

#[tokio::test]
async fn tokens_of_an_issuer_are_verified_with_its_keys() {
    let (key, other) = (key(), key());
    let issuer = Issuer::start(&key).await;
    let authenticator = start(&issuer.configuration());
    authenticator.ready().await;
    let good = key.sign(&issuer.claims()).unwrap();
    for _ in 0..3 {
        assert_eq!(ask(&authenticator, &good).await, Ok(Some("oidc:ann".to_owned())));
    }
    assert_eq!(issuer.fetched.load(Ordering::SeqCst), 1, "keys are cached");
    let forged = other.sign(&issuer.claims()).unwrap();
    assert!(ask(&authenticator, &forged).await.unwrap_err().contains("failed to verify signature"));
    assert_eq!(ask(&authenticator, "opaque").await, Ok(None));
    let changed = |name: &str, value: Value| {
        let mut claims = issuer.claims();
        claims[name] = value;
        key.sign(&claims).unwrap()
    };
    assert_eq!(ask(&authenticator, &changed("iss", json!("https://other"))).await, Ok(None));
    for (name, value, why) in [
        ("aud", json!("other"), "oidc: expected audience \"api\" got [\"other\"]"),
        ("exp", json!(system_clock() - 1), "oidc: token is expired"),
        ("exp", json!("soon"), "is not a time"),
        ("exp", Value::Null, "oidc: token is expired"),
        ("nbf", json!(system_clock() + 120), "before the nbf"),
        ("sub", json!(7), "oidc: parse username claims"),
    ] {
        let refused = ask(&authenticator, &changed(name, value)).await.unwrap_err();
        assert!(refused.contains(why), "{name}: {refused}");
    }
    // Neither without a signature nor with an algorithm that is not allowed.
    let unsigned = "eyJhbGciOiJub25lIn0";
    let unsigned = format!("{unsigned}.{}.", good.split('.').nth(1).unwrap());
    assert!(ask(&authenticator, &unsigned).await.unwrap_err().contains("unsupported algorithm"));
    let rsa_only = JwtIssuers::start(&issuer.configuration(), &[], &[Algorithm::Rs256], None).unwrap();
    rsa_only.ready().await;
    assert!(ask(&rsa_only, &good).await.unwrap_err().contains("expected [\"RS256\"] got \"ES256\""));
}

#[tokio::test]
async fn new_keys_of_an_issuer_are_fetched_once() {
    let (old, new) = (key(), key());
    let issuer = Issuer::start(&old).await;
    let authenticator = start(&issuer.configuration());
    authenticator.ready().await;
    assert!(ask(&authenticator, &old.sign(&issuer.claims()).unwrap()).await.is_ok());
    *issuer.keys.lock().unwrap() = vec![new.public_key().clone()];
    let token = new.sign(&issuer.claims()).unwrap();
    let all = futures_util::future::join_all((0..20).map(|_| ask(&authenticator, &token))).await;
    assert!(all.iter().all(|user| *user == Ok(Some("oidc:ann".to_owned()))));
    assert_eq!(issuer.fetched.load(Ordering::SeqCst), 2, "requests share a fetch");
    assert!(ask(&authenticator, &old.sign(&issuer.claims()).unwrap()).await.is_err(), "revoked");
}

#[tokio::test]
async fn issuers_that_fail_or_lie_authenticate_nobody() {
    let key = key();
    let issuer = Issuer::start(&key).await;
    let (url, configuration) = (issuer.server.url(), issuer.configuration());
    let token = key.sign(&issuer.claims()).unwrap();
    let keys = KeySet::new(vec![key.public_key().clone()]).to_json();
    let lies: Vec<(&str, Answer)> = vec![
        (
            "another issuer",
            Answer::Json(200, json!({"issuer": "https://evil", "jwks_uri": format!("{url}/keys")})),
        ),
        ("no keys", Answer::Json(200, json!({"issuer": url}))),
        ("keys in clear", Answer::Json(200, json!({"issuer": url, "jwks_uri": "http://127.0.0.1/keys"}))),
        ("redirect", Answer::Text(302, "location: https://evil/\r\n", String::new())),
        ("nonsense", Answer::Text(200, "", "<html>".to_owned())),
        ("cut", Answer::Cut),
        ("error", Answer::Json(500, json!({}))),
    ];
    for (lie, answer) in lies {
        issuer.server.answer(move |_| answer.clone());
        let authenticator = start(&configuration);
        let waited = tokio::time::timeout(Duration::from_millis(300), authenticator.ready()).await;
        assert!(waited.is_err(), "{lie}");
        assert_eq!(
            ask(&authenticator, &token).await,
            Err("oidc: authenticator not initialized".to_owned()),
            "{lie}"
        );
    }
    let document = json!({"issuer": url, "jwks_uri": format!("{url}/keys")});
    for (lie, answer) in [
        ("redirect", Answer::Text(302, "location: https://evil/\r\n", String::new())),
        ("nonsense", Answer::Text(200, "", "{\"keys\": 5}".to_owned())),
        ("cut", Answer::Cut),
        ("empty", Answer::Json(200, json!({"keys": []}))),
        ("symmetric", Answer::Json(200, json!({"keys": [{"kty": "oct", "k": "AA"}]}))),
    ] {
        let document = document.clone();
        issuer.server.answer(move |asked| match asked.path() {
            "/keys" => answer.clone(),
            _ => Answer::Json(200, document.clone()),
        });
        let authenticator = start(&configuration);
        authenticator.ready().await;
        assert!(
            ask(&authenticator, &token).await.unwrap_err().contains("failed to verify signature"),
            "{lie}"
        );
    }
    // Once it answers well, it is believed.
    issuer.server.answer(move |asked| match asked.path() {
        "/keys" => Answer::Json(200, keys.clone()),
        _ => Answer::Json(200, document.clone()),
    });
    let authenticator = start(&configuration);
    authenticator.ready().await;
    assert!(ask(&authenticator, &token).await.is_ok());
}

#[tokio::test]
async fn changed_configuration_takes_effect_and_a_broken_one_does_not() {
    let key = key();
    let issuer = Issuer::start(&key).await;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("authentication.yaml");
    fs::write(&path, issuer.text("sub")).unwrap();
    let file = Arc::new(ConfigurationFile::load(&path, &[]).unwrap());
    file.ready().await;
    let token = key.sign(&issuer.claims()).unwrap();
    assert_eq!(ask(&file, &token).await, Ok(Some("oidc:ann".to_owned())));
    assert_eq!(file.reload().await, Ok(false), "nothing changed");
    fs::write(&path, issuer.text("email")).unwrap();
    assert_eq!(file.reload().await, Ok(true));
    assert_eq!(ask(&file, &token).await, Ok(Some("oidc:ann@example.org".to_owned())));
    for (broken, why) in [
        (issuer.text("sub").replace("username:", "user:"), "unknown field \"jwt[0].claimMappings.user\""),
        (
            issuer.text("sub").replace("audiences: [api]", "audiences: []"),
            "invalid authentication configuration",
        ),
        (format!("{}anonymous: {{enabled: false}}\n", issuer.text("sub")), "anonymous"),
        (String::new(), "empty config data"),
    ] {
        fs::write(&path, broken).unwrap();
        let error = file.reload().await.unwrap_err();
        assert!(error.contains(why), "{error}");
        assert_eq!(ask(&file, &token).await, Ok(Some("oidc:ann@example.org".to_owned())), "the last stays");
    }
    assert_eq!(file.reloads().succeeded(), 1);
    assert_eq!(file.reloads().failed(), 4);
    assert!(ConfigurationFile::load(&folder.path().join("missing"), &[]).is_err());
}

#[tokio::test]
async fn groups_are_fetched_from_where_the_token_says() {
    let (key, claims_key) = (key(), key());
    let issuer = Issuer::start(&key).await;
    let (url, token_keys) = (issuer.server.url(), KeySet::new(vec![key.public_key().clone()]).to_json());
    let text = issuer.text("sub") + "    groups: {claim: groups, prefix: 'oidc:'}\n";
    let authenticator = start(&AuthenticationConfiguration::decode(&text).unwrap());
    // The claims are by an issuer of their own, below the path /claims.
    let claims_keys = KeySet::new(vec![claims_key.public_key().clone()]).to_json();
    let distributed = json!({"iss": format!("{url}/claims"), "aud": "api", "sub": "ann", "groups": ["dev", "ops"],
        "exp": system_clock() + 60});
    let serve = |answer: Answer| {
        let (url, token_keys, claims_keys) = (url.clone(), token_keys.clone(), claims_keys.clone());
        issuer.server.answer(move |asked| match asked.path() {
            "/.well-known/openid-configuration" => {
                Answer::Json(200, json!({"issuer": url, "jwks_uri": format!("{url}/keys")}))
            }
            "/claims/.well-known/openid-configuration" => Answer::Json(
                200,
                json!({"issuer": format!("{url}/claims"), "jwks_uri": format!("{url}/claims/keys")}),
            ),
            "/keys" => Answer::Json(200, token_keys.clone()),
            "/claims/keys" => Answer::Json(200, claims_keys.clone()),
            "/groups" if asked.headers.get("authorization").is_some_and(|value| value == "Bearer secret") => {
                answer.clone()
            }
            _ => Answer::Text(403, "", String::new()),
        });
    };
    let plain = |text: String| Answer::Text(200, "content-type: application/jwt\r\n", text);
    serve(plain(claims_key.sign(&distributed).unwrap()));
    authenticator.ready().await;
    let with_source = |source: Value| {
        let mut claims = issuer.claims();
        claims["_claim_names"] = json!({"groups": "src"});
        claims["_claim_sources"] = json!({"src": source});
        key.sign(&claims).unwrap()
    };
    let endpoint = format!("{url}/groups");
    let good = with_source(json!({"endpoint": endpoint, "access_token": "secret"}));
    let found = authenticator.authenticate(&good, &[]).await.unwrap().unwrap();
    assert_eq!(found.user.groups, ["oidc:dev", "oidc:ops"]);
    for source in [
        json!({"endpoint": endpoint, "access_token": "wrong"}),
        json!({"endpoint": endpoint}),
        json!({"endpoint": "http://127.0.0.1/groups", "access_token": "secret"}),
    ] {
        let refused = ask(&authenticator, &with_source(source.clone())).await.unwrap_err();
        assert!(refused.contains("could not expand distributed claims"), "{source}: {refused}");
    }
    let changed = |name: &str, value: Value| {
        let mut claims = distributed.clone();
        match value {
            Value::Null => drop(claims.as_object_mut().unwrap().remove(name)),
            value => claims[name] = value,
        }
        claims_key.sign(&claims).unwrap()
    };
    for (lie, answer) in [
        ("forged", plain(key.sign(&distributed).unwrap())),
        ("expired", plain(changed("exp", json!(system_clock() - 1)))),
        ("another audience", plain(changed("aud", json!("other")))),
        ("an issuer that does not exist", plain(changed("iss", json!(format!("{url}/none"))))),
        ("without the claim", plain(changed("groups", Value::Null))),
        ("nonsense", plain("<html>".to_owned())),
        ("redirect", Answer::Text(302, "location: https://evil/\r\n", String::new())),
        ("cut", Answer::Cut),
    ] {
        serve(answer);
        let refused = ask(&authenticator, &good).await.unwrap_err();
        assert!(refused.contains("could not expand distributed claims"), "{lie}: {refused}");
    }
}
