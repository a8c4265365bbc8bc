//! The least-privilege policy, held against a simulator that evaluates it: enough for a life of each kind, and no action
//! too many.

use std::collections::{BTreeMap, BTreeSet};

use orlop_aws::{Settings, iam_action, iam_policy};
use serde_json::{Value, json};

use crate::{
    cases::{Case, KINDS, encode, is_ready, prepare},
    harness::{Harness, settings},
    inventory::elements,
    proxy::Proxy,
    simulators::{Simulator, enforcing},
};

/// Actions that AWS itself asks for when it acts on other calls.
const ASKED_BY_AWS: &[&str] = &[
    "ec2:DescribeSecurityGroups",
    "ec2:DescribeSubnets",
    "ec2:DescribeVpcs",
    "ecr:BatchGetImage",
    "ecr:GetDownloadUrlForLayer",
    "iam:CreateServiceLinkedRole",
    "iam:PassRole",
    "kms:CreateGrant",
    "kms:DescribeKey",
    "lambda:GetLayerVersion",
    "s3:GetObjectVersion",
    "s3:PutBucketAcl",
];

/// Actions of calls that the lives do not make, each with what would make it.
const NOT_CALLED: &[(&str, &str)] = &[
    ("acm:AddTagsToCertificate", "a changed tag"),
    ("acm:ImportCertificate", "an imported certificate"),
    ("acm:RemoveTagsFromCertificate", "a changed tag"),
    ("acm:UpdateCertificateOptions", "changed options"),
    ("apigateway:PUT", "an API by its body"),
    ("dynamodb:DeleteResourcePolicy", "a resource policy"),
    ("dynamodb:DescribeContributorInsights", "contributor insights"),
    ("dynamodb:GetResourcePolicy", "a resource policy"),
    ("dynamodb:PutResourcePolicy", "a resource policy"),
    ("dynamodb:UpdateContributorInsights", "contributor insights"),
    ("iam:ListInstanceProfilesForRole", "a role that an instance profile holds"),
    ("iam:PutRolePermissionsBoundary", "a changed boundary"),
    ("lambda:DeleteFunctionCodeSigningConfig", "code signing"),
    ("lambda:DeleteProvisionedConcurrencyConfig", "provisioned concurrency"),
    ("lambda:GetFunctionCodeSigningConfig", "code signing"),
    ("lambda:GetProvisionedConcurrencyConfig", "provisioned concurrency"),
    ("lambda:PutFunctionCodeSigningConfig", "code signing"),
    ("lambda:PutProvisionedConcurrencyConfig", "provisioned concurrency"),
    ("lambda:UpdateFunctionCode", "changed code"),
    ("route53:AssociateVPCWithHostedZone", "a private zone"),
    ("route53:DisassociateVPCFromHostedZone", "a private zone"),
    ("s3:DeleteBucketPolicy", "another part of a bucket"),
    ("s3:DeleteBucketWebsite", "another part of a bucket"),
    ("s3:GetAccelerateConfiguration", "another part of a bucket"),
    ("s3:GetBucketLogging", "another part of a bucket"),
    ("s3:GetBucketNotification", "another part of a bucket"),
    ("s3:GetBucketObjectLockConfiguration", "another part of a bucket"),
    ("s3:GetBucketOwnershipControls", "another part of a bucket"),
    ("s3:GetBucketRequestPayment", "another part of a bucket"),
    ("s3:GetEncryptionConfiguration", "another part of a bucket"),
    ("s3:GetLifecycleConfiguration", "another part of a bucket"),
    ("s3:GetReplicationConfiguration", "another part of a bucket"),
    ("s3:PutAccelerateConfiguration", "another part of a bucket"),
    ("s3:PutBucketLogging", "another part of a bucket"),
    ("s3:PutBucketNotification", "another part of a bucket"),
    ("s3:PutBucketObjectLockConfiguration", "another part of a bucket"),
    ("s3:PutBucketOwnershipControls", "another part of a bucket"),
    ("s3:PutBucketRequestPayment", "another part of a bucket"),
    ("s3:PutEncryptionConfiguration", "another part of a bucket"),
    ("s3:PutLifecycleConfiguration", "another part of a bucket"),
    ("s3:PutReplicationConfiguration", "another part of a bucket"),
    ("sts:AssumeRole", "a namespace with a role"),
];

struct Ground {
    aws: Simulator,
    proxy: Proxy,
    harness: Harness,
    policy: Value,
}

/// Actions by which the simulator knows others of Lambda: those of aliases, and of invoke configurations.
const MISTAKEN: [&str; 4] =
    ["lambda:ListAliases", "lambda:GetFunction", "lambda:UpdateFunctionCode", "lambda:DeleteFunction"];

/// Returns the policy of the kinds, as the simulator needs it.
fn policy_of(settings: &Settings, account: &str) -> Value {
    let mut policy = iam_policy(settings, account);
    let statements = policy["Statement"].as_array_mut().expect("statements");
    for statement in statements.iter_mut() {
        // The simulator takes some resources of these for `*`, such as that of CreateFunction. AWS knows their ARNs.
        if ["Lambda", "Dynamodb"].iter().any(|sid| statement["Sid"] == *sid) {
            statement["Resource"] = json!("*");
        }
    }
    if settings.kinds.iter().any(|kind| kind == "Alias") {
        statements.push(json!({"Sid": "Mistaken", "Effect": "Allow", "Action": MISTAKEN, "Resource": "*"}));
    }
    policy
}

impl Ground {
    /// Starts the controllers of a kind as a user that has its policy and nothing else.
    async fn start(kind: &str, account: &str) -> Self {
        let all = KINDS.iter().find(|kinds| kinds[0] == kind).expect("a kind with a life");
        let aws = enforcing(account);
        let (code, said) =
            aws.query("iam", "Action=CreateUser&UserName=controllers&Version=2010-05-08").await;
        assert_eq!(code, 200, "{said}");
        let (_, key) =
            aws.query("iam", "Action=CreateAccessKey&UserName=controllers&Version=2010-05-08").await;
        let part = |name: &str| elements(&key, name).first().copied().unwrap_or_default().to_owned();
        let variables = BTreeMap::from([
            ("AWS_ACCESS_KEY_ID".to_owned(), part("AccessKeyId")),
            ("AWS_SECRET_ACCESS_KEY".to_owned(), part("SecretAccessKey")),
            ("AWS_EC2_METADATA_DISABLED".to_owned(), "true".to_owned()),
        ]);
        let proxy = Proxy::start(&aws.address).await;
        let kinds = all.iter().map(|kind| (*kind).to_owned()).collect();
        let settings = Settings { kinds, environment: Some(variables), ..settings(&proxy.address) };
        let policy = policy_of(&settings, account);
        grant(&aws, &policy).await;
        let harness = Harness::start(settings).await;
        Self { aws, proxy, harness, policy }
    }

    /// Actions of the calls made so far.
    fn called(&self) -> BTreeSet<String> {
        let calls = self.harness.observer.calls();
        let mut actions: BTreeSet<String> =
            calls.keys().filter_map(|(service, operation, _)| iam_action(service, operation)).collect();
        let made = self.proxy.made();
        let gateway = made.iter().filter_map(|call| call.split_once(" /v2/"));
        actions.extend(gateway.map(|(method, _)| format!("apigateway:{method}")));
        actions
    }

    /// The number of calls that were denied so far.
    fn denied(&self) -> u64 {
        let calls = self.harness.observer.calls();
        let denied = calls.iter().filter(|((_, _, outcome), _)| outcome.contains("AccessDenied"));
        denied.map(|(_, count)| count).sum()
    }

    /// Lives a life, until it is over or a call is denied. True if one was.
    async fn live(&self, case: &Case) -> bool {
        let before = self.denied();
        let is_denied = || self.denied() > before;
        let harness = &self.harness;
        harness.apply(&case.place, case.kind, json!({}), case.spec.clone()).await;
        let done = async || harness.get(&case.place).await.is_some_and(|object| is_ready(&object));
        harness.until("Ready, or denied", async || (done().await || is_denied()).then_some(())).await;
        if let Some((change, look)) = case.change.as_ref().filter(|_| !is_denied()) {
            harness.patch(&case.place, json!({"spec": change})).await;
            let done = async || look.is_shown(&self.aws).await && self.proxy.is_quiet();
            harness.until("changed, or denied", async || (done().await || is_denied()).then_some(())).await;
        }
        if !is_denied() {
            harness.delete(&case.place).await;
            let done = async || harness.get(&case.place).await.is_none();
            harness.until("gone, or denied", async || (done().await || is_denied()).then_some(())).await;
        }
        is_denied()
    }
}

async fn grant(aws: &Simulator, policy: &Value) {
    let document = encode(&policy.to_string());
    let query = format!(
        "Action=PutUserPolicy&UserName=controllers&PolicyName=least&PolicyDocument={document}&Version=2010-05-08"
    );
    let (code, said) = aws.query("iam", &query).await;
    assert_eq!(code, 200, "{said}");
}

/// Returns the actions of a policy.
fn actions(policy: &Value) -> BTreeSet<String> {
    let statements = policy["Statement"].as_array().into_iter().flatten();
    let of = |action: &Value| match action {
        Value::Array(all) => all.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
        one => vec![one.as_str().unwrap_or_default().to_owned()],
    };
    statements.flat_map(|statement| of(&statement["Action"])).collect()
}

/// Returns a policy without an action.
fn without(policy: &Value, action: &str) -> Value {
    let mut policy = policy.clone();
    for statement in policy["Statement"].as_array_mut().into_iter().flatten() {
        if let Some(all) = statement["Action"].as_array_mut() {
            all.retain(|one| one != action);
        }
    }
    if let Some(all) = policy["Statement"].as_array_mut() {
        all.retain(|statement| statement["Action"].as_array().is_none_or(|actions| !actions.is_empty()));
    }
    policy
}

#[tokio::test(flavor = "multi_thread")]
async fn policy_of_each_kind_is_enough_for_its_life_and_grants_nothing_that_is_not_called() {
    let (mut called, mut granted, mut denied) = (BTreeSet::new(), BTreeSet::new(), Vec::new());
    for (number, kinds) in KINDS.iter().enumerate() {
        let account = format!("5000000000{number:02}");
        let ground = Ground::start(kinds[0], &account).await;
        let case = prepare(kinds[0], &ground.aws, &ground.harness, &account).await;
        if ground.live(&case).await {
            denied.push(format!("{}: {:?}", kinds[0], ground.harness.observer.calls()));
        }
        called.extend(ground.called());
        granted.extend(actions(&iam_policy(&ground.harness.settings, &account)));
    }
    assert!(denied.is_empty(), "{denied:#?}");
    let missing: Vec<_> = called.difference(&granted).collect();
    assert!(missing.is_empty(), "called and not granted: {missing:?}");
    let not_called = NOT_CALLED.iter().map(|(action, _)| action).chain(ASKED_BY_AWS).copied();
    let not_called: BTreeSet<&str> = not_called.collect();
    let unused: BTreeSet<&str> = granted.difference(&called).map(String::as_str).collect();
    assert_eq!(unused, not_called, "granted and never called");
}

#[test]
fn policy_of_all_kinds_fits_a_managed_policy() {
    let policy = iam_policy(&Settings::default(), "123456789012").to_string();
    assert!(policy.len() < 6_144, "{} characters", policy.len());
}

/// Takes each action away in turn: a call is denied, and granted again the life goes on to its end.
async fn needs_every_action(kind: &str, account: &str) {
    let ground = Ground::start(kind, account).await;
    let case = prepare(kind, &ground.aws, &ground.harness, account).await;
    assert!(!ground.live(&case).await);
    let policy = &ground.policy;
    let free = ["sts:GetCallerIdentity", "sts:AssumeRole"];
    for action in ground.called().iter().filter(|action| !free.contains(&action.as_str())) {
        grant(&ground.aws, &without(policy, action)).await;
        assert!(ground.live(&case).await, "{kind} does without {action}");
        grant(&ground.aws, policy).await;
        let object = ground.harness.get(&case.place).await;
        if object.is_some_and(|object| object["metadata"]["deletionTimestamp"].is_null()) {
            ground.harness.eventually(&case.place, is_ready).await;
            ground.harness.delete(&case.place).await;
        }
        ground.harness.gone(&case.place).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_action_of_a_role_is_needed_and_its_denial_is_survived() {
    needs_every_action("Role", "510000000001").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_action_of_a_record_is_needed_and_its_denial_is_survived() {
    needs_every_action("RecordSet", "510000000002").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_action_of_a_permission_is_needed_and_its_denial_is_survived() {
    needs_every_action("LambdaPermission", "510000000003").await;
}
