//! LambdaPermission: statements of a function's policy.

use std::sync::LazyLock;

use async_trait::async_trait;
use serde_json::{Value, json};

use super::{
    kind::{Descriptor, Phase, Phases, READY, Workflow},
    step::{Cleaned, Step},
    work::{Child, Work, missing_field},
};
use crate::{
    client::{Failure, LAMBDA, Result, optional, path},
    fields::parse,
    kind::at,
    kinds::lambda::{statement_of, statements},
};

const FUNCTION: (&str, &str) = ("lambda", "Function");
const API: (&str, &str) = ("apigatewayv2", "API");
/// Longest statement id.
const STATEMENT_ID_MAX: usize = 100;
/// End of the id of the statement for the route `$default`, whose ARN has a segment less.
const DEFAULT_ROUTE: &str = "-default";

#[derive(Debug)]
pub(crate) struct LambdaPermission;

/// Phases of a permission.
#[derive(Clone, Copy, Debug)]
pub(crate) enum PermissionPhase {
    /// The function exists.
    Function,
    /// Its policy has the statements, and none that is no longer wanted.
    Permissions,
}

impl Phases for PermissionPhase {
    const ALL: &'static [Self] = &[Self::Function, Self::Permissions];

    fn names(self) -> Phase {
        let phase = |condition, working, done| Phase { condition, working, pending: None, done };
        match self {
            Self::Function => phase("FunctionResolved", "FUNCTION_RESOLVING", "FUNCTION_RESOLVED"),
            Self::Permissions => phase("PermissionsSynced", "PERMISSIONS_SYNCING", READY),
        }
    }
}

static DESCRIPTOR: Descriptor = Descriptor {
    kind: "LambdaPermission",
    plural: "lambdapermissions",
    short_names: &["lperm"],
    spec: LazyLock::new(|| {
        parse(
            "functionRef!={functionName name qualifier}
             permissions![]{statementId! action principal sourceArn sourceAccount principalOrgId apiRef{name! namespace}}",
        )
    }),
    status: LazyLock::new(|| parse("functionArn permissions[]{statementId status message}")),
    refine_schema: |spec| {
        spec["properties"]["functionRef"]["x-kubernetes-validations"] = json!([
            {"rule": "self == oldSelf", "message": "Value is immutable once set"},
            {"rule": "has(self.functionName) != has(self.name)", "message": "one of functionName and name is needed"}]);
        let permission = &mut spec["properties"]["permissions"]["items"];
        permission["properties"]["statementId"]["pattern"] = json!("^[A-Za-z0-9_-]+$");
        permission["properties"]["statementId"]["maxLength"] = json!(STATEMENT_ID_MAX);
        permission["properties"]["action"]["default"] = json!("lambda:InvokeFunction");
        permission["properties"]["principal"]["default"] = json!("apigateway.amazonaws.com");
        permission["x-kubernetes-validations"] = json!([
            {"rule": "!has(self.apiRef) || !has(self.sourceArn)", "message": "apiRef and sourceArn cannot be used together"}]);
        spec["properties"]["permissions"]["maxItems"] = json!(100);
    },
    children: &[],
    references: &[FUNCTION, API],
    actions: &["lambda:GetFunction", "lambda:GetPolicy", "lambda:AddPermission", "lambda:RemovePermission"],
    columns: &[("Function", "string", ".status.functionArn")],
};

#[async_trait]
impl Workflow for LambdaPermission {
    type Phase = PermissionPhase;

    const DESCRIPTOR: &'static Descriptor = &DESCRIPTOR;

    fn check(spec: &Value) -> std::result::Result<(), String> {
        let mut ids: Vec<&str> = permissions(spec).filter_map(|item| item["statementId"].as_str()).collect();
        ids.sort_unstable();
        match ids.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => Err(format!("configuration error: statementId {} is there twice", pair[0])),
            None => Ok(()),
        }
    }

    async fn run_phase(phase: PermissionPhase, work: &mut Work<'_>) -> Result<Step> {
        match phase {
            PermissionPhase::Function => resolve_function(work).await,
            PermissionPhase::Permissions => sync(work).await,
        }
    }

    async fn clean_phase(phase: PermissionPhase, work: &mut Work<'_>) -> Result<Cleaned> {
        match phase {
            PermissionPhase::Function => Ok(Cleaned::Gone),
            PermissionPhase::Permissions => remove_all(work).await,
        }
    }
}

fn permissions(spec: &Value) -> impl Iterator<Item = &Value> {
    spec["permissions"].as_array().into_iter().flatten()
}

/// Finds the function, by its name or by its object.
async fn resolve_function(work: &mut Work<'_>) -> Result<Step> {
    let name = match (work.spec("functionRef.functionName"), work.spec("functionRef.name")) {
        (Some(name), _) => name.to_owned(),
        (None, None) => return Err(missing_field("functionRef.functionName")),
        (None, Some(object)) => {
            let object = object.to_owned();
            match work.reference(FUNCTION, None, &object).await? {
                Child::Is(function) => {
                    at(&function, "spec.name").and_then(Value::as_str).unwrap_or_default().to_owned()
                }
                Child::Blocked(step) => return Ok(step),
            }
        }
    };
    let address = path(&["2015-03-31", "functions", &name]);
    let query: Vec<_> = work.spec("functionRef.qualifier").map(|it| ("Qualifier", it)).into_iter().collect();
    let read = work.aws.rest_query(&LAMBDA, "GetFunction", "GET", &address, &query, None).await;
    match optional(read, &[])? {
        Some(answer) => {
            work.status["functionArn"] = answer["Configuration"]["FunctionArn"].clone();
            Ok(Step::done("Ready", format!("function {name} exists")))
        }
        None => Ok(Step::missing(format!("reference not found: function {name}"))),
    }
}

/// Name of the function, of its ARN: `arn:aws:lambda:REGION:ACCOUNT:function:NAME[:QUALIFIER]`.
fn function_of(work: &Work<'_>) -> Option<String> {
    let of_arn = work.status("functionArn").and_then(|arn| arn.split(':').nth(6)).map(str::to_owned);
    of_arn.or_else(|| work.spec("functionRef.functionName").map(str::to_owned))
}

/// Statements that `spec` asks for, in the form of [`statement_of`], or the step that stands in their way.
async fn desired_statements(work: &mut Work<'_>) -> Result<std::result::Result<Vec<Value>, Step>> {
    let mut out = Vec::new();
    let spec = work.spec_value("permissions").cloned().unwrap_or_default();
    for permission in spec.as_array().into_iter().flatten() {
        let text = |field: &str| permission[field].as_str().filter(|text| !text.is_empty());
        let id = text("statementId").unwrap_or_default();
        let mut statement = json!({"statementID": id,
            "action": text("action").unwrap_or("lambda:InvokeFunction"),
            "principal": text("principal").unwrap_or("apigateway.amazonaws.com")});
        for (field, name) in [
            ("sourceArn", "sourceARN"),
            ("sourceAccount", "sourceAccount"),
            ("principalOrgId", "principalOrgID"),
        ] {
            if let Some(value) = text(field) {
                statement[name] = json!(value);
            }
        }
        let Some(api) = at(permission, "apiRef.name").and_then(Value::as_str) else {
            out.push(statement);
            continue;
        };
        let namespace = at(permission, "apiRef.namespace").and_then(Value::as_str);
        let api = match work.reference(API, namespace, api).await? {
            Child::Is(api) => api,
            Child::Blocked(step) => return Ok(Err(step)),
        };
        let of_routes = at(&api, "spec.protocolType").and_then(Value::as_str) == Some("WEBSOCKET");
        let Some(api) = at(&api, "status.apiID").and_then(Value::as_str) else {
            let text = "resource not ready: the API has no status.apiID";
            return Ok(Err(Step::wait(15, "InProgress", text)));
        };
        let arn =
            format!("arn:{}:execute-api:{}:{}:{api}", work.aws.partition, work.aws.region, work.aws.account);
        if of_routes {
            // A WebSocket API presents stage and route, and no method.
            statement["sourceARN"] = json!(format!("{arn}/*/*"));
            out.push(statement);
            continue;
        }
        if id.len() + DEFAULT_ROUTE.len() > STATEMENT_ID_MAX {
            let text = format!("configuration error: statementId {id} is too long for one with apiRef");
            return Ok(Err(Step::refused("Error", text)));
        }
        let mut default = statement.clone();
        statement["sourceARN"] = json!(format!("{arn}/*/*/*"));
        default["statementID"] = json!(format!("{id}{DEFAULT_ROUTE}"));
        default["sourceARN"] = json!(format!("{arn}/*/$default"));
        out.extend([statement, default]);
    }
    Ok(Ok(out))
}

fn id_of(statement: &Value) -> &str {
    statement["statementID"].as_str().unwrap_or_default()
}

/// A change of the policy.
enum Change<'a> {
    Remove(String),
    Add(&'a Value),
}

/// Returns the next change: removals first, so that a changed statement has room.
fn next_change<'a>(desired: &'a [Value], recorded: &[String], policy: &[Value]) -> Option<Change<'a>> {
    let current: Vec<(Value, bool)> =
        policy.iter().map(|statement| (statement_of(statement), statement["Effect"] == "Allow")).collect();
    let find = |id: &str| current.iter().find(|(statement, _)| id_of(statement) == id);
    let is_desired = |id: &str| desired.iter().any(|statement| id_of(statement) == id);
    let obsolete = recorded.iter().find(|id| !is_desired(id) && find(id).is_some()).cloned();
    let different = desired.iter().find(|desired| {
        find(id_of(desired)).is_some_and(|(statement, allows)| statement != *desired || !allows)
    });
    let missing = desired.iter().find(|desired| find(id_of(desired)).is_none());
    obsolete
        .or_else(|| different.map(|statement| id_of(statement).to_owned()))
        .map(Change::Remove)
        .or_else(|| missing.map(Change::Add))
}

/// Returns the statement ids in status.
fn recorded_ids(work: &Work<'_>) -> Vec<String> {
    let list = work.status["permissions"].as_array().into_iter().flatten();
    list.filter_map(|item| item["statementId"].as_str().map(str::to_owned)).collect()
}

async fn sync(work: &mut Work<'_>) -> Result<Step> {
    let desired = match desired_statements(work).await? {
        Ok(desired) => desired,
        Err(step) => return Ok(step),
    };
    let recorded = recorded_ids(work);
    // Ids are written to status before AddPermission: what a killed controller added is removed in the end.
    if desired.iter().any(|statement| !recorded.iter().any(|id| id == id_of(statement))) {
        let known = work.status["permissions"].as_array().cloned().unwrap_or_default();
        let fresh = desired.iter().filter(|statement| !recorded.iter().any(|id| id == id_of(statement)));
        let fresh = fresh.map(|statement| json!({"statementId": id_of(statement), "status": "Pending"}));
        work.status["permissions"] = known.into_iter().chain(fresh.collect::<Vec<_>>()).collect();
        return Ok(Step::again("statements are about to be added"));
    }
    let Some(function) = function_of(work) else { return Err(missing_field("functionRef.functionName")) };
    for _ in 0..2 * (desired.len() + recorded.len()) + 4 {
        let (policy, revision) = read_policy(work, &function).await?;
        let changed = match next_change(&desired, &recorded, &policy) {
            None => {
                let applied = desired
                    .iter()
                    .map(|statement| json!({"statementId": id_of(statement), "status": "Applied"}));
                work.status["permissions"] = applied.collect();
                return Ok(Step::done("Ready", format!("{} statements are in the policy", desired.len())));
            }
            Some(Change::Remove(id)) => remove(work, &function, &id, revision.as_deref()).await,
            Some(Change::Add(statement)) => {
                let added = add(work, &function, statement, revision.as_deref()).await;
                if let Err(failure) = &added {
                    record_failure(work, id_of(statement), failure);
                }
                added
            }
        };
        match changed {
            Ok(()) => {}
            // The policy was changed concurrently, or an earlier attempt succeeded after all: read it again.
            Err(failure) if failure.is(&["PreconditionFailedException", "ResourceConflictException"]) => {}
            Err(failure) if failure.is(&["PolicyLengthExceededException"]) => {
                let text = format!("the policy of {function} would be larger than 20 KB: {failure}");
                return Err(Failure::Terminal(text));
            }
            Err(failure) => return Err(failure),
        }
    }
    Err(Failure::Recoverable(format!("the policy of {function} keeps changing")))
}

fn record_failure(work: &mut Work<'_>, id: &str, failure: &Failure) {
    for item in work.status["permissions"].as_array_mut().into_iter().flatten() {
        if item["statementId"] == id {
            *item = json!({"statementId": id, "status": "Failed", "message": failure.to_string()});
        }
    }
}

async fn read_policy(work: &Work<'_>, function: &str) -> Result<(Vec<Value>, Option<String>)> {
    statements(work.aws, function, work.spec("functionRef.qualifier")).await
}

async fn add(work: &Work<'_>, function: &str, statement: &Value, revision: Option<&str>) -> Result<()> {
    let text = |field: &str| statement[field].as_str();
    let mut body =
        json!({"StatementId": id_of(statement), "Action": text("action"), "Principal": text("principal")});
    for (field, name) in
        [("sourceARN", "SourceArn"), ("sourceAccount", "SourceAccount"), ("principalOrgID", "PrincipalOrgID")]
    {
        if let Some(value) = text(field) {
            body[name] = json!(value);
        }
    }
    if let Some(revision) = revision {
        body["RevisionId"] = json!(revision);
    }
    let address = path(&["2015-03-31", "functions", function, "policy"]);
    let query: Vec<_> = work.spec("functionRef.qualifier").map(|it| ("Qualifier", it)).into_iter().collect();
    work.aws.rest_query(&LAMBDA, "AddPermission", "POST", &address, &query, Some(body)).await.map(drop)
}

async fn remove(work: &Work<'_>, function: &str, id: &str, revision: Option<&str>) -> Result<()> {
    let address = path(&["2015-03-31", "functions", function, "policy", id]);
    let mut query: Vec<_> =
        work.spec("functionRef.qualifier").map(|it| ("Qualifier", it)).into_iter().collect();
    query.extend(revision.map(|revision| ("RevisionId", revision)));
    let removed = work.aws.rest_query(&LAMBDA, "RemovePermission", "DELETE", &address, &query, None).await;
    optional(removed, &[]).map(drop)
}

/// Removes the statements in status. A function that is gone has none.
async fn remove_all(work: &mut Work<'_>) -> Result<Cleaned> {
    let Some(function) = function_of(work) else { return Ok(Cleaned::Gone) };
    let ids = recorded_ids(work);
    for _ in 0..2 * ids.len() + 2 {
        let (policy, revision) = read_policy(work, &function).await?;
        match next_change(&[], &ids, &policy) {
            Some(Change::Remove(id)) => match remove(work, &function, &id, revision.as_deref()).await {
                Err(failure) if !failure.is(&["PreconditionFailedException"]) => return Err(failure),
                _ => {}
            },
            _ => return Ok(Cleaned::Gone),
        }
    }
    Err(Failure::Recoverable(format!("the policy of {function} keeps changing")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn statement(id: &str, source: &str) -> Value {
        json!({"Sid": id, "Effect": "Allow", "Action": "lambda:InvokeFunction",
            "Principal": {"Service": "apigateway.amazonaws.com"}, "Condition": {"ArnLike": {"AWS:SourceArn": source}}})
    }

    fn describe(change: Option<Change<'_>>) -> String {
        match change {
            None => "none".to_owned(),
            Some(Change::Remove(id)) => format!("remove {id}"),
            Some(Change::Add(statement)) => format!("add {}", id_of(statement)),
        }
    }

    #[test]
    fn foreign_statements_are_left_and_removals_come_first() {
        let desired = [statement_of(&statement("a", "arn:1")), statement_of(&statement("b", "arn:1"))];
        let recorded = ["a", "b", "old"].map(str::to_owned);
        let next = |policy: &[Value]| describe(next_change(&desired, &recorded, policy));
        let foreign = statement("foreign", "arn:9");
        assert_eq!(next(&[foreign.clone(), statement("old", "arn:1")]), "remove old");
        assert_eq!(next(&[foreign.clone(), statement("a", "arn:2")]), "remove a");
        assert_eq!(next(&[foreign.clone(), statement("a", "arn:1")]), "add b");
        assert_eq!(next(&[foreign, statement("a", "arn:1"), statement("b", "arn:1")]), "none");
    }

    #[test]
    fn denying_statement_of_the_same_id_is_different() {
        let desired = [statement_of(&statement("a", "arn:1"))];
        let mut denies = statement("a", "arn:1");
        denies["Effect"] = json!("Deny");
        assert_eq!(describe(next_change(&desired, &["a".to_owned()], &[denies])), "remove a");
    }
}
