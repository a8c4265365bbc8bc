//! Statements of functions' policies: those of a LambdaPermission and those of an Alias.

use serde_json::{Value, json};

use crate::{
    harness::{Harness, at, condition, has, of_account},
    proxy::{Fault, Proxy},
    simulators::{Simulator, ministack},
    stage::{Stage, bridge, reason},
};

/// Returns the policy of a function, or of an alias of it by the query.
async fn policy(aws: &Simulator, function: &str, query: &str) -> Value {
    let path = format!("/2015-03-31/functions/{function}/policy{query}");
    let (_, answer) = aws.rest("lambda", "GET", &path, None).await;
    serde_json::from_str(answer["Policy"].as_str().unwrap_or("{}")).expect("a policy")
}

/// Returns the ids of the statements of a policy.
fn ids(policy: &Value) -> Vec<String> {
    let statements = policy["Statement"].as_array().into_iter().flatten();
    let mut ids: Vec<_> = statements.filter_map(|one| one["Sid"].as_str().map(str::to_owned)).collect();
    ids.sort();
    ids
}

async fn statement_ids(aws: &Simulator, function: &str) -> Vec<String> {
    ids(&policy(aws, function, "").await)
}

pub(crate) async fn create_function(aws: &Simulator, name: &str) {
    let body = json!({"FunctionName": name, "Runtime": "python3.12", "Handler": "main.handler",
        "Role": format!("arn:aws:iam::{}:role/any", aws.key), "Code": {"ZipFile": "UEsFBgAAAAAAAAAAAAAAAAAAAAAAAA=="}});
    let (code, answer) = aws.rest("lambda", "POST", "/2015-03-31/functions", Some(body)).await;
    assert_eq!(code, 201, "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn permissions_are_added_changed_and_removed_and_foreign_ones_stay() {
    let stage = Stage::start("100000000013").await;
    let (harness, aws) = (&stage.harness, &stage.aws);
    let place = bridge("lambdapermissions", "allow");
    let apply = async |permissions: Value| {
        let spec = json!({"functionRef": {"functionName": "greet"}, "permissions": permissions});
        harness.apply(&place, "LambdaPermission", json!({}), spec).await;
    };
    // The function is not there yet.
    apply(json!([{"statementId": "api", "apiRef": {"name": "shop"}}])).await;
    let waiting = harness.eventually(&place, |object| has(object, "FunctionResolved", "False")).await;
    assert_eq!(reason(&waiting, "FunctionResolved"), "ReferenceNotFound");
    create_function(aws, "greet").await;
    let add = |id: &str, source: &str| {
        json!({"StatementId": id, "Action": "lambda:InvokeFunction",
        "Principal": "s3.amazonaws.com", "SourceArn": source})
    };
    let path = "/2015-03-31/functions/greet/policy";
    aws.rest("lambda", "POST", path, Some(add("foreign", "arn:aws:s3:::any"))).await;
    let ready = stage.ready(&place).await;
    // The route `$default` has a statement of its own: its ARN is shorter.
    assert_eq!(statement_ids(aws, "greet").await, ["api", "api-default", "foreign"]);
    assert_eq!(ready["status"]["permissions"][0], json!({"statementId": "api", "status": "Applied"}));

    // One goes, one comes, one is there already with another meaning.
    aws.rest("lambda", "POST", path, Some(add("bucket", "arn:aws:s3:::wrong"))).await;
    let wanted = json!([{"statementId": "bucket", "principal": "s3.amazonaws.com", "sourceArn": "arn:aws:s3:::right"}]);
    apply(wanted).await;
    harness
        .until("the policy follows", async || {
            let (_, policy) = aws.rest("lambda", "GET", path, None).await;
            let right = policy.to_string().contains("arn:aws:s3:::right");
            (right && statement_ids(aws, "greet").await == ["bucket", "foreign"]).then_some(())
        })
        .await;

    // A function of the same name without a policy is drift.
    aws.rest("lambda", "DELETE", "/2015-03-31/functions/greet", None).await;
    create_function(aws, "greet").await;
    harness
        .until("the statement is back", async || {
            (statement_ids(aws, "greet").await == ["bucket"]).then_some(())
        })
        .await;
    aws.rest("lambda", "POST", path, Some(add("foreign", "arn:aws:s3:::any"))).await;
    stage.delete(&place).await;
    assert_eq!(statement_ids(aws, "greet").await, ["foreign"]);
    harness.assert_allowed();
}

/// Writers of one policy took each other's changes for failures, and a statement whose answer was lost for a conflict.
#[tokio::test(flavor = "multi_thread")]
async fn race_for_a_policy_is_run_again_and_its_limit_is_told() {
    let stage = Stage::start("100000000022").await;
    let (harness, aws) = (&stage.harness, &stage.aws);
    create_function(aws, "raced").await;
    let place = bridge("lambdapermissions", "raced");
    let apply = async |ids: &[&str]| {
        let statement =
            |id: &&str| json!({"statementId": id, "sourceArn": format!("arn:aws:sns:us-east-1:1:{id}")});
        let all: Vec<Value> = ids.iter().map(statement).collect();
        let spec = json!({"functionRef": {"functionName": "raced"}, "permissions": all});
        harness.apply(&place, "LambdaPermission", json!({}), spec).await;
    };
    let becomes = async |wanted: &[&str]| {
        harness
            .until("the policy follows", async || (statement_ids(aws, "raced").await == wanted).then_some(()))
            .await;
        stage.ready(&place).await;
    };
    let policy = "/2015-03-31/functions/raced/policy";
    // Somebody else was quicker.
    stage.proxy.inject(&format!("POST {policy}"), Fault::Answer(412, "PreconditionFailedException"), 2);
    apply(&["one"]).await;
    becomes(&["one"]).await;
    stage.proxy.inject(&format!("POST {policy}"), Fault::CutAfterSend, 1);
    apply(&["one", "two"]).await;
    becomes(&["one", "two"]).await;
    stage.proxy.inject(&format!("DELETE {policy}"), Fault::Answer(412, "PreconditionFailedException"), 2);
    apply(&["two"]).await;
    becomes(&["two"]).await;

    apply(&["two", "two"]).await;
    let refused = harness.eventually(&place, |object| has(object, "Degraded", "True")).await;
    let said = condition(&refused, "Ready").expect("a condition")["message"].to_string();
    assert!(said.contains("statementId two is there twice"), "{said}");
    let full = "The final policy size (20593) is bigger than the limit (20480).";
    stage.proxy.inject(
        &format!("POST {policy}"),
        Fault::Say(400, "PolicyLengthExceededException", full),
        usize::MAX,
    );
    apply(&["three", "two"]).await;
    let refused = harness
        .eventually(&place, |object| {
            condition(object, "PermissionsSynced")
                .is_some_and(|synced| synced["message"].to_string().contains("would be larger than 20 KB"))
        })
        .await;
    assert!(has(&refused, "Degraded", "True") && refused["status"]["ready"] == false);
    let statements = refused["status"]["permissions"].as_array().expect("statements");
    let three = statements.iter().find(|one| one["statementId"] == "three").expect("the statement");
    assert_eq!(three["status"], "Failed");
    stage.proxy.clear();
    becomes(&["three", "two"]).await;
    stage.delete(&place).await;
    assert_eq!(statement_ids(aws, "raced").await, Vec::<String>::new());
}

/// A permission that failed left an alias behind that its object did not own any more.
#[tokio::test(flavor = "multi_thread")]
async fn permissions_of_an_alias_change_and_one_that_fails_leaves_it_managed() {
    let account = "600000000028";
    let aws = ministack(account);
    let proxy = Proxy::start(&aws.address).await;
    let harness = Harness::start(of_account(&proxy.address, account)).await;
    create_function(&aws, "called").await;
    let place = at("lambda", "aliases", "default", "live");
    let apply = async |statements: &[(&str, &str)]| {
        let statement = |(id, source): &(&str, &str)| {
            json!({"statementID": id, "action": "lambda:InvokeFunction", "principal": "sns.amazonaws.com",
                "sourceARN": format!("arn:aws:sns:us-east-1:1:{source}")})
        };
        let all: Vec<Value> = statements.iter().map(statement).collect();
        let spec = json!({"name": "live", "functionName": "called", "functionVersion": "$LATEST", "permissions": all});
        harness.apply(&place, "Alias", json!({}), spec).await;
    };
    let alias = async || policy(&aws, "called", "?Qualifier=live").await;
    let denied = Fault::Answer(403, "AccessDeniedException");
    proxy.inject_for("POST /2015-03-31/functions/called/policy", "\"b\"", denied, usize::MAX);
    apply(&[("a", "one"), ("b", "one")]).await;
    let failed = harness.eventually(&place, |object| has(object, "ACK.Recoverable", "True")).await;
    assert!(failed["metadata"]["finalizers"].is_array(), "what was made is held on to");
    assert!(condition(&failed, "ACK.Terminal").is_none() && !has(&failed, "Ready", "True"), "{failed:#}");
    assert_eq!(ids(&alias().await), ["a"]);
    proxy.clear();
    harness.synced(&place).await;
    assert_eq!(ids(&alias().await), ["a", "b"]);

    apply(&[("a", "two"), ("c", "one")]).await;
    harness
        .until("changed, removed and added", async || {
            let policy = alias().await;
            (ids(&policy) == ["a", "c"] && policy.to_string().contains("us-east-1:1:two")).then_some(())
        })
        .await;
    harness.synced(&place).await;
    harness.delete(&place).await;
    harness.gone(&place).await;
    let (code, _) = aws.rest("lambda", "GET", "/2015-03-31/functions/called/aliases/live", None).await;
    assert_eq!(code, 404);
    harness.assert_allowed();
}
