//! The webhook authorizer against servers that work, lie, hang, cut and redirect.

use std::{sync::Arc, time::Duration};

use orlop_auth::{
    Authorizer, Decision, User,
    authorization::{FailurePolicy, WebhookAuthorizer, WebhookConfiguration},
    request::Attributes,
};
use serde_json::{Value, json};

use crate::server::{Answer, Server};

/// An authorizer of a server, without retries that a test would wait for.
fn authorizer(server: &Server, change: impl FnOnce(&mut WebhookConfiguration)) -> WebhookAuthorizer {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kubeconfig");
    server.write_kubeconfig(&path, "{token: abc}");
    let mut configuration = WebhookConfiguration {
        authorized_ttl: Duration::from_secs(60),
        unauthorized_ttl: Duration::ZERO,
        timeout: Duration::from_millis(300),
        version: "v1".to_owned(),
        failure_policy: FailurePolicy::NoOpinion,
        kube_config_file: path,
        match_conditions: Vec::new(),
    };
    change(&mut configuration);
    WebhookAuthorizer::new("w", &configuration).unwrap()
}

fn request(user: &str) -> Attributes {
    Attributes {
        user: Arc::new(User::authenticated(user, [])),
        verb: "get".into(),
        is_resource_request: true,
        version: "v1".into(),
        resource: "pods".into(),
        namespace: "n".into(),
        ..Attributes::default()
    }
}

fn answer(version: &str, status: Value) -> Answer {
    let api_version = format!("authorization.k8s.io/{version}");
    Answer::Json(201, json!({"apiVersion": api_version, "kind": "SubjectAccessReview", "status": status}))
}

#[tokio::test]
async fn decisions_are_the_servers_and_cached_by_their_sort() {
    let server = Server::start(|asked| {
        let review = asked.json();
        assert_eq!(review["kind"], "SubjectAccessReview");
        assert_eq!(
            review["spec"]["resourceAttributes"],
            json!({"verb": "get", "version": "v1", "resource": "pods", "namespace": "n"})
        );
        answer(
            "v1",
            match review["spec"]["user"].as_str() {
                Some("ann") => json!({"allowed": true, "reason": "good"}),
                Some("eve") => json!({"allowed": false, "denied": true, "reason": "bad"}),
                Some("liar") => json!({"allowed": true, "denied": true}),
                _ => json!({"allowed": false}),
            },
        )
    })
    .await;
    let authorizer = authorizer(&server, |_| {});
    for _ in 0..3 {
        let decision = authorizer.authorize(&request("ann")).await.decision;
        assert_eq!(decision, Decision::Allow("good".into()));
    }
    assert_eq!(server.asked(), 1, "allowed requests are cached");
    for _ in 0..2 {
        assert_eq!(authorizer.authorize(&request("eve")).await.decision, Decision::Deny("bad".into()));
        assert_eq!(authorizer.authorize(&request("bob")).await.decision, Decision::NoOpinion("".into()));
    }
    assert_eq!(server.asked(), 5, "others are not, with a time of zero");
    let both = authorizer.authorize(&request("liar")).await;
    assert_eq!(both.decision, Decision::Deny("".into()));
    assert_eq!(both.errors, ["webhook subject access review returned both allow and deny response"]);
}

#[tokio::test]
async fn failing_server_never_allows() {
    let server = Server::start(|_| Answer::Hang).await;
    let open = authorizer(&server, |_| {});
    let closed = authorizer(&server, |configuration| configuration.failure_policy = FailurePolicy::Deny);
    let allowed = || json!({"allowed": true});
    let other_kind = json!({"apiVersion": "v1", "kind": "Pod", "status": {"allowed": true}});
    let answers = [
        ("hangs", Answer::Hang),
        ("is cut", Answer::Cut),
        ("redirects", Answer::Text(307, "location: https://127.0.0.1:1/\r\n", String::new())),
        ("refuses", Answer::Json(403, json!({"message": "no"}))),
        ("allows with an error code", Answer::Json(400, json!({"status": {"allowed": true}}))),
        ("answers in another version", answer("v1beta1", allowed())),
        ("answers with another kind", Answer::Json(200, other_kind)),
        ("answers with text", Answer::Json(200, json!({"status": {"allowed": "true"}}))),
        ("answers nonsense", Answer::Text(200, "", "<html>".to_owned())),
        ("answers without end", Answer::Text(200, "", format!("\"{}\"", "x".repeat(5 << 20)))),
    ];
    for (name, answer) in answers {
        let given = answer.clone();
        server.answer(move |_| given.clone());
        let evaluation = open.authorize(&request("ann")).await;
        assert_eq!(evaluation.decision, Decision::NoOpinion("".into()), "a server that {name}");
        assert_eq!(evaluation.errors.len(), 1, "a server that {name}");
        let evaluation = closed.authorize(&request("ann")).await;
        assert_eq!(evaluation.decision, Decision::Deny("".into()), "a server that {name}");
    }
    // Failures are not cached.
    server.answer(move |_| answer("v1", allowed()));
    assert_eq!(open.authorize(&request("ann")).await.decision, Decision::Allow("".into()));
}

#[tokio::test]
async fn groups_have_the_name_of_the_version() {
    for (version, name, other) in [("v1", "groups", "group"), ("v1beta1", "group", "groups")] {
        let server = Server::start(move |asked| {
            let spec = &asked.json()["spec"];
            let is_member = spec[name] == json!(["system:authenticated"]) && spec.get(other).is_none();
            answer(version, json!({"allowed": is_member}))
        })
        .await;
        let authorizer = authorizer(&server, |configuration| configuration.version = version.to_owned());
        assert_eq!(
            authorizer.authorize(&request("ann")).await.decision,
            Decision::Allow("".into()),
            "{version}"
        );
    }
}

#[tokio::test]
async fn match_conditions_select_requests_before_the_server_is_asked() {
    let server = Server::start(|_| answer("v1beta1", json!({"allowed": true}))).await;
    let conditions = |policy: FailurePolicy| {
        authorizer(&server, |configuration| {
            configuration.version = "v1beta1".to_owned();
            configuration.failure_policy = policy;
            configuration.match_conditions = vec![
                "request.user != 'ann'".to_owned(),
                "request.resourceAttributes.namespace == 'n'".to_owned(),
            ];
        })
    };
    let authorizer = conditions(FailurePolicy::Deny);
    assert_eq!(authorizer.authorize(&request("ann")).await.decision, Decision::NoOpinion("".into()));
    assert_eq!(server.asked(), 0);
    assert_eq!(authorizer.authorize(&request("bob")).await.decision, Decision::Allow("".into()));
    let path = Attributes { path: "/x".into(), user: request("bob").user, ..Attributes::default() };
    let failed = authorizer.authorize(&path).await;
    assert_eq!((&failed.decision, failed.errors.len()), (&Decision::Deny("".into()), 1));
    let failed = conditions(FailurePolicy::NoOpinion).authorize(&path).await;
    assert_eq!(failed.decision, Decision::NoOpinion("".into()));
    assert_eq!(server.asked(), 1);
}
