//! acm Certificate.

use std::{sync::LazyLock, time::Duration};

use async_trait::async_trait;
use base64::Engine as _;
use serde_json::{Value, json};

use super::acm_private_key::decrypt;
use crate::{
    client::{ACM, Failure, Result, Session, optional},
    fields::{Case, Difference, from_json, parse, to_json},
    kind::{
        Deletion, Descriptor, Export, Kind, Object, Observed, Reference, Tags, UID_TAG, aws_tags, differs,
        tag_changes, tags_of,
    },
};

#[derive(Debug)]
pub(crate) struct Certificate;

static DESCRIPTOR: Descriptor = Descriptor {
    service: &ACM,
    kind: "Certificate",
    plural: "certificates",
    spec: LazyLock::new(|| {
        parse(
            "certificate=$ certificateARN^= certificateAuthorityARN=^ certificateAuthorityRef@ certificateChain=$
             domainName domainValidationOptions=^[]{domainName validationDomain} exportTo=^$ keyAlgorithm=
             options{certificateTransparencyLoggingPreference} privateKey=$ subjectAlternativeNames[]
             tags~[]{key value}",
        )
    }),
    status: LazyLock::new(|| {
        parse(
            "createdAt:t
             domainValidations[]>DomainValidationOptions{domainName resourceRecord{name type_>Type value}
                 validationDomain validationEmails[] validationMethod validationStatus}
             extendedKeyUsages[]{name oid>OID} failureReason importedAt:t inUseBy[] issuedAt:t issuer
             keyUsages[]{name} notAfter:t notBefore:t renewalEligibility
             renewalSummary{domainValidationOptions[]{domainName resourceRecord{name type_>Type value}
                 validationDomain validationEmails[] validationMethod validationStatus} renewalStatus
                 renewalStatusReason updatedAt:t}
             revocationReason revokedAt:t serial signatureAlgorithm status subject type_>Type",
        )
    }),
    adoption: &[("arn", "status.ackResourceMetadata.arn")],
    identity: &["domainName", "subjectAlternativeNames"],
    references: &[Reference {
        field: "certificateAuthorityARN",
        reference: "certificateAuthorityRef",
        target: ("acmpca", "CertificateAuthority"),
        value: "status.ackResourceMetadata.arn",
        prefix: "",
        required: false,
        list: false,
    }],
    terminal: &[
        "InvalidParameterException",
        "InvalidDomainValidationOptionsException",
        "InvalidTagException",
        "TagPolicyException",
        "TooManyTagsException",
        "InvalidArnException",
    ],
    late: &["keyAlgorithm?", "options?"],
    tags: Tags::List("tags"),
    resync: Some(Duration::from_secs(60)),
    actions: &[
        "acm:RequestCertificate",
        "acm:ImportCertificate",
        "acm:DescribeCertificate",
        "acm:ListCertificates",
        "acm:UpdateCertificateOptions",
        "acm:DeleteCertificate",
        "acm:ExportCertificate",
        "acm:AddTagsToCertificate",
        "acm:RemoveTagsFromCertificate",
        "acm:ListTagsForCertificate",
    ],
    columns: &[("DOMAIN", "string", ".spec.domainName"), ("STATUS", "string", ".status.status")],
};

/// Key of a Secret that the private key is written to.
const PRIVATE_KEY: &str = "tls.key";
/// Notes which certificate was exported last.
const EXPORTED: &str = "acm.services.k8s.aws/exported";

fn is_import(object: &Object) -> bool {
    ["certificate", "privateKey", "certificateChain"].iter().any(|field| object.spec.get(*field).is_some())
}

#[async_trait]
impl Kind for Certificate {
    fn descriptor(&self) -> &'static Descriptor {
        &DESCRIPTOR
    }

    fn validate(&self, object: &Object) -> Result<()> {
        let set = |fields: &[&str]| fields.iter().any(|field| object.spec.get(*field).is_some());
        let request =
            ["domainName", "subjectAlternativeNames", "domainValidationOptions", "keyAlgorithm", "options"];
        let message = if is_import(object) && set(&request[..3]) {
            "cannot set fields used for requesting a certificate when importing a certificate"
        } else if is_import(object) && object.spec.get("privateKey").is_none() {
            "privateKey is required when importing a certificate"
        } else if !is_import(object) && set(&["certificateARN"]) {
            "cannot set fields used for importing a certificate when requesting a certificate"
        } else if is_import(object) && set(&["exportTo"]) {
            "exportTo: an imported certificate cannot be exported"
        } else if object.spec("exportTo.key") == Some(PRIVATE_KEY) {
            "exportTo.key: tls.key is the key of the private key"
        } else {
            return Ok(());
        };
        Err(Failure::Terminal(message.to_owned()))
    }

    async fn read(&self, aws: &Session, object: &Object) -> Result<Option<Observed>> {
        let Some(arn) = object.arn().or(object.spec("certificateARN")) else { return Ok(None) };
        let read = aws.json(&ACM, "DescribeCertificate", json!({"CertificateArn": arn})).await;
        let Some(answer) = optional(read, &[])? else { return Ok(None) };
        let certificate = &answer["Certificate"];
        let mut spec = from_json(&DESCRIPTOR.spec, certificate, Case::Pascal);
        let status = from_json(&DESCRIPTOR.status, certificate, Case::Pascal);
        if let Some(algorithm) = spec["keyAlgorithm"].as_str() {
            spec["keyAlgorithm"] = json!(algorithm.replace('-', "_"));
        }
        let answer = aws.json(&ACM, "ListTagsForCertificate", json!({"CertificateArn": arn})).await?;
        let tags = answer["Tags"].as_array().into_iter().flatten();
        spec["tags"] = tags.map(|tag| json!({"key": tag["Key"], "value": tag["Value"]})).collect();
        Ok(Some(Observed { spec, status, arn: Some(arn.to_owned()), ..Observed::default() }))
    }

    async fn create(&self, aws: &Session, object: &Object) -> Result<Value> {
        let tags = aws_tags(&tags_of(object.spec.get("tags")));
        let answer = if is_import(object) {
            let encoded = |field: &str| {
                let text = object.secrets.get(field)?;
                Some(base64::engine::general_purpose::STANDARD.encode(text))
            };
            let mut body =
                json!({"Certificate": encoded("certificate"), "PrivateKey": encoded("privateKey")});
            if let Some(chain) = encoded("certificateChain") {
                body["CertificateChain"] = json!(chain);
            }
            match object.spec("certificateARN") {
                Some(arn) => body["CertificateArn"] = json!(arn),
                None => body["Tags"] = tags,
            }
            aws.json(&ACM, "ImportCertificate", body).await?
        } else {
            let mut body = to_json(&DESCRIPTOR.spec, &object.spec, Case::Pascal);
            body["ValidationMethod"] = json!("DNS");
            if object.spec.get("exportTo").is_some() && object.spec("certificateAuthorityARN").is_none() {
                // Public certificates are exportable only if they were requested so.
                body["Options"]["Export"] = json!("ENABLED");
            }
            // The same token within an hour is the same certificate.
            body["IdempotencyToken"] = json!(object.uid.replace('-', ""));
            body["Tags"] = tags;
            aws.json(&ACM, "RequestCertificate", body).await?
        };
        Ok(json!({"ackResourceMetadata": {"arn": answer["CertificateArn"]}}))
    }

    /// Looks for the UID in the tags of certificates for the same name.
    async fn find(&self, aws: &Session, object: &Object) -> Result<Option<Value>> {
        for summary in list_certificates(aws, &[]).await? {
            let arn = summary["CertificateArn"].as_str().unwrap_or_default();
            if object.spec("domainName").is_some_and(|domain| summary["DomainName"] != domain) {
                continue;
            }
            let answer = aws.json(&ACM, "ListTagsForCertificate", json!({"CertificateArn": arn})).await?;
            let mut tags = answer["Tags"].as_array().into_iter().flatten();
            if tags.any(|tag| tag["Key"] == UID_TAG && tag["Value"] == object.uid.as_str()) {
                return Ok(Some(json!({"ackResourceMetadata": {"arn": arn}})));
            }
        }
        Ok(None)
    }

    fn refine(&self, object: &Object, observed: &Observed, changed: &mut Vec<Difference>) {
        let names = |value: &Value, domain: Option<&str>| {
            let listed = value["subjectAlternativeNames"].as_array().into_iter().flatten();
            let mut names: Vec<String> = listed.filter_map(|name| name.as_str().map(str::to_owned)).collect();
            // ACM adds the domain itself.
            names.extend(domain.map(str::to_owned));
            names.sort();
            names.dedup();
            names
        };
        let domain = object.spec("domainName");
        let same = names(&object.spec, domain) == names(&observed.spec, domain);
        changed.retain(|difference| match difference.field.as_str() {
            "subjectAlternativeNames" => !same,
            "keyAlgorithm" => {
                let text =
                    |value: &Value| value["keyAlgorithm"].as_str().unwrap_or_default().replace('-', "_");
                text(&object.spec) != text(&observed.spec)
            }
            "domainName" => !is_import(object),
            _ => true,
        });
    }

    async fn update(
        &self,
        aws: &Session,
        object: &Object,
        observed: &Observed,
        changed: &[Difference],
    ) -> Result<()> {
        let arn = observed.arn.as_deref().unwrap_or_default();
        if differs(changed, "tags") {
            let (add, remove) = tag_changes(object, observed);
            if !remove.is_empty() {
                let tags: Vec<_> = remove.iter().map(|key| json!({"Key": key})).collect();
                aws.json(&ACM, "RemoveTagsFromCertificate", json!({"CertificateArn": arn, "Tags": tags}))
                    .await?;
            }
            if !add.is_empty() {
                let body = json!({"CertificateArn": arn, "Tags": aws_tags(&add)});
                aws.json(&ACM, "AddTagsToCertificate", body).await?;
            }
        }
        if differs(changed, "options") {
            if is_import(object) {
                return Err(Failure::Terminal(
                    "only tags can be updated for an imported certificate".to_owned(),
                ));
            }
            let options = to_json(&DESCRIPTOR.spec, &object.spec, Case::Pascal)["Options"].clone();
            aws.json(&ACM, "UpdateCertificateOptions", json!({"CertificateArn": arn, "Options": options}))
                .await?;
        }
        Ok(())
    }

    /// An export is of a serial number: a renewal has another.
    fn exports(&self, object: &Object, observed: &Observed) -> Option<Export> {
        object.spec.get("exportTo")?;
        let text = |field: &str| observed.status[field].as_str().unwrap_or_default().to_owned();
        let note = format!("{} {}", text("serial"), text("issuedAt"));
        let keys = vec![object.need("exportTo.key").to_owned(), PRIVATE_KEY.to_owned()];
        (text("status") == "ISSUED").then_some(Export { field: "exportTo", keys, note: (EXPORTED, note) })
    }

    async fn export(&self, aws: &Session, observed: &Observed) -> Result<Vec<String>> {
        let encode = |bytes: &[u8]| base64::engine::general_purpose::STANDARD.encode(bytes);
        // ACM encrypts the key with a passphrase that never leaves this function.
        let passphrase = encode(&rand::random::<[u8; 24]>());
        let body = json!({"CertificateArn": observed.arn, "Passphrase": encode(passphrase.as_bytes())});
        let answer = aws.json(&ACM, "ExportCertificate", body).await?;
        let text = |field: &str| answer[field].as_str().unwrap_or_default();
        let separator = if text("Certificate").ends_with('\n') { "" } else { "\n" };
        let chain = format!("{}{separator}{}", text("Certificate"), text("CertificateChain"));
        Ok(vec![chain, decrypt(text("PrivateKey"), passphrase.as_bytes())?])
    }

    async fn delete(&self, aws: &Session, _: &Object, observed: &Observed) -> Result<Deletion> {
        let arn = observed.arn.as_deref().unwrap_or_default();
        let users = observed.status["inUseBy"].as_array().map_or(0, Vec::len);
        match optional(aws.json(&ACM, "DeleteCertificate", json!({"CertificateArn": arn})).await, &[]) {
            Err(failure) if failure.is(&["ResourceInUseException"]) => {
                Err(Failure::Recoverable(format!("{failure} ({users} users)")))
            }
            other => other.map(|_| Deletion::Gone),
        }
    }
}

/// All key types: without them ACM lists RSA 1024 and 2048 only.
const KEY_TYPES: [&str; 7] =
    ["RSA_1024", "RSA_2048", "RSA_3072", "RSA_4096", "EC_prime256v1", "EC_secp384r1", "EC_secp521r1"];

/// Lists summaries of certificates: of these states, or of all.
pub(crate) async fn list_certificates(aws: &Session, states: &[&str]) -> Result<Vec<Value>> {
    let mut all = Vec::new();
    let mut next = Value::Null;
    for _ in 0..100 {
        let mut body = json!({"MaxItems": 1000, "Includes": {"keyTypes": KEY_TYPES}});
        if !states.is_empty() {
            body["CertificateStatuses"] = json!(states);
        }
        if !next.is_null() {
            body["NextToken"] = next.take();
        }
        let mut page = aws.json(&ACM, "ListCertificates", body).await?;
        if let Value::Array(found) = page["CertificateSummaryList"].take() {
            all.extend(found);
        }
        next = page["NextToken"].take();
        if next.is_null() {
            break;
        }
    }
    Ok(all)
}
