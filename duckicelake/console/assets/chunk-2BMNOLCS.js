async function o(r){for(;;)try{return await r()}catch(e){if(navigator.onLine)throw e;await new Promise(n=>addEventListener("online",n,{once:!0}))}}export{o as a};
